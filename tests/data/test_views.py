import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as tv
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageFilter
from pydantic import ValidationError
from torchvision.transforms import ColorJitter, InterpolationMode, RandomResizedCrop

from attmask.data.views import Jitter, ViewParameters, Views, ViewsConfig, draw, render
from attmask.errors import UserError

SIZE = (320, 240)
PLAIN = ViewParameters(
    size=48,
    box=(20, 10, 220, 190),
    flip=False,
    jitter=None,
    grey=False,
    blur_sigma=None,
    solarise=False,
)


def picture(width: int = 320, height: int = 240) -> Image.Image:
    """Smooth colours with some noise, as in a photograph."""
    chance = np.random.default_rng(1)
    coarse = chance.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)
    noise = chance.integers(-12, 13, (height, width, 3))
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))


def draws(view: int, count: int, config: ViewsConfig | None = None) -> list[ViewParameters]:
    config = config or ViewsConfig()
    return [draw(config, SIZE, seed=0, epoch=0, sample=i, view=view) for i in range(count)]


def pixels(image: Image.Image) -> np.ndarray:
    return np.asarray(image).transpose(2, 0, 1)


def farthest_apart(ours: list[float], theirs: list[float]) -> float:
    """The Kolmogorov-Smirnov distance of two samples."""
    points = np.sort([*ours, *theirs])
    ranks = [np.searchsorted(np.sort(x), points, side="right") / len(x) for x in (ours, theirs)]
    return float(np.abs(ranks[0] - ranks[1]).max())


def shares(boxes: list[tuple[int, int, int, int]]) -> dict[str, list[float]]:
    """Area, shape and place of crops, as shares of the image."""
    left, top, right, bottom = np.array(boxes, dtype=float).T
    width, height = right - left, bottom - top
    return {
        "area": (width * height / (SIZE[0] * SIZE[1])).tolist(),
        "aspect": (width / height).tolist(),
        "left": (left / SIZE[0]).tolist(),
        "top": (top / SIZE[1]).tolist(),
    }


# --- what is drawn


@pytest.mark.parametrize(("view", "scale"), [(0, (0.25, 1.0)), (1, (0.25, 1.0)), (2, (0.05, 0.25))])
def test_crops_have_the_distribution_of_torchvision(view: int, scale: tuple[float, float]) -> None:
    count = 3000
    torch.manual_seed(0)
    canvas = torch.empty(1, SIZE[1], SIZE[0])
    boxes = []
    for _ in range(count):
        top, left, h, w = RandomResizedCrop.get_params(canvas, list(scale), [3 / 4, 4 / 3])
        boxes.append((left, top, left + w, top + h))
    theirs = shares(boxes)
    ours = shares([parameters.box for parameters in draws(view, count)])
    for name in theirs:  # 1.95 sqrt(2 / n): passed over by chance once in a thousand
        assert farthest_apart(ours[name], theirs[name]) < 1.95 * math.sqrt(2 / count), name


def test_the_area_of_local_crops_is_uniform_between_its_limits() -> None:
    areas = shares([parameters.box for parameters in draws(2, 3000)])["area"]
    uniform = np.linspace(0.05, 0.25, 3000).tolist()
    assert farthest_apart(areas, uniform) < 0.03
    assert min(areas) > 0.048
    assert max(areas) < 0.252


@given(
    width=st.integers(1, 4000),
    height=st.integers(1, 4000),
    view=st.integers(0, 4),
    sample=st.integers(0, 2**40),
)
def test_a_crop_lies_within_any_image(width: int, height: int, view: int, sample: int) -> None:
    crop = draw(ViewsConfig(), (width, height), seed=3, epoch=1, sample=sample, view=view)
    left, top, right, bottom = crop.box
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@pytest.mark.parametrize(
    ("size", "box"),
    [((1000, 10), (493, 0, 506, 10)), ((10, 1000), (0, 493, 10, 506)), ((1, 1), (0, 0, 1, 1))],
)
def test_an_image_too_long_for_any_crop_gives_its_middle(
    size: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    whole = ViewsConfig(split_scale=1.0)
    assert draw(whole, size, seed=0, epoch=0, sample=0, view=0).box == box


def test_each_change_comes_as_often_as_it_should() -> None:
    count = 2000
    for view, blur, solarise in ((0, 1.0, 0.0), (1, 0.1, 0.2), (2, 0.5, 0.0), (9, 0.5, 0.0)):
        made = draws(view, count)
        rates = {
            "flip": (0.5, [p.flip for p in made]),
            "jitter": (0.8, [p.jitter is not None for p in made]),
            "grey": (0.2, [p.grey for p in made]),
            "blur": (blur, [p.blur_sigma is not None for p in made]),
            "solarise": (solarise, [p.solarise for p in made]),
        }
        for name, (rate, seen) in rates.items():
            allowed = 4 * math.sqrt(rate * (1 - rate) / count)
            assert abs(np.mean(seen) - rate) <= allowed, (view, name)


def test_the_strength_of_the_blur_is_uniform() -> None:
    sigmas = [p.blur_sigma for p in draws(0, 3000) if p.blur_sigma is not None]
    assert farthest_apart(sigmas, np.linspace(0.1, 2.0, 3000).tolist()) < 0.03


def test_colour_factors_have_the_distribution_of_torchvision() -> None:
    count = 3000
    torch.manual_seed(0)
    rule = ColorJitter(0.4, 0.4, 0.2, 0.1)
    theirs = [
        ColorJitter.get_params(rule.brightness, rule.contrast, rule.saturation, rule.hue)[1:]
        for _ in range(count)
    ]
    ours = [p.jitter for p in draws(0, count) if p.jitter is not None]
    for place in range(4):
        samples = [j.factors[place] for j in ours], [float(t[place]) for t in theirs]
        allowed = 1.95 * math.sqrt(1 / len(ours) + 1 / count)
        assert farthest_apart(*samples) < allowed, place


def test_all_orders_of_the_colour_steps_are_equally_likely() -> None:
    orders = Counter(p.jitter.order for p in draws(0, 3000) if p.jitter is not None)
    assert len(orders) == 24
    expected = orders.total() / 24
    assert all(abs(seen - expected) < 4 * math.sqrt(expected) for seen in orders.values())


def test_the_choices_of_two_views_are_independent() -> None:
    first, second = draws(0, 2000), draws(1, 2000)
    flips = np.corrcoef([p.flip for p in first], [p.flip for p in second])[0, 1]
    places = np.corrcoef([p.box[0] for p in first], [p.box[0] for p in second])[0, 1]
    areas = np.corrcoef([p.box[2] for p in first[1:]], [p.box[2] for p in first[:-1]])[0, 1]
    assert max(abs(flips), abs(places), abs(areas)) < 0.08


def test_the_same_counters_give_the_same_view_and_any_other_counter_another() -> None:
    counters = {"seed": 1, "epoch": 2, "sample": 3, "view": 4}
    first = draw(ViewsConfig(), SIZE, **counters)
    assert draw(ViewsConfig(), SIZE, **counters) == first
    for name in counters:
        other = draw(ViewsConfig(), SIZE, **{**counters, name: counters[name] + 1})
        assert other.box != first.box, name
    swapped = draw(ViewsConfig(), SIZE, seed=1, epoch=3, sample=2, view=4)
    assert swapped.box != first.box


def test_a_setting_changes_only_what_it_is_about() -> None:
    sharp = ViewsConfig(blur_probabilities=(0.0, 0.0, 0.0), flip_probability=1.0)
    for usual, changed in zip(draws(0, 20), draws(0, 20, sharp), strict=True):
        assert changed == replace(usual, blur_sigma=None, flip=True)


# --- what is done with it


def apart(ours: np.ndarray, theirs: np.ndarray) -> int:
    return int(np.abs(ours.astype(int) - theirs.astype(int)).max())


def test_cut_and_resize_equal_torchvision_within_one_level_inside_the_border() -> None:
    left, top, right, bottom = PLAIN.box
    theirs = tv.resized_crop(
        picture(), top, left, bottom - top, right - left, [48, 48], InterpolationMode.BICUBIC
    )
    inner = np.s_[:, 4:-4, 4:-4]  # the cut reads beyond the crop, torchvision's crop cannot
    assert apart(render(picture(), PLAIN)[inner], pixels(theirs)[inner]) <= 1


def test_the_whole_image_is_resized_exactly_as_by_torchvision() -> None:
    ours = render(picture(), replace(PLAIN, box=(0, 0, 320, 240)))
    theirs = tv.resize(picture(), [48, 48], InterpolationMode.BICUBIC)
    assert np.array_equal(ours, pixels(theirs))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)])
def test_every_change_after_the_cut_equals_torchvision(order: tuple[int, ...]) -> None:
    factors = (1.3, 0.7, 1.15, -0.08)
    everything = replace(
        PLAIN, flip=True, jitter=Jitter(order, factors), blur_sigma=1.3, solarise=True
    )
    theirs = Image.fromarray(render(picture(), PLAIN).transpose(1, 2, 0))
    theirs = tv.hflip(theirs)
    steps = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)
    for step in order:
        theirs = steps[step](theirs, factors[step])
    theirs = tv.solarize(theirs.filter(ImageFilter.GaussianBlur(1.3)), 128)
    assert np.array_equal(render(picture(), everything), pixels(theirs))


def test_grey_equals_torchvision() -> None:
    theirs = tv.rgb_to_grayscale(Image.fromarray(render(picture(), PLAIN).transpose(1, 2, 0)), 3)
    assert np.array_equal(render(picture(), replace(PLAIN, grey=True)), pixels(theirs))


def test_a_grey_picture_keeps_one_channel_and_only_brightness_and_contrast_change_it() -> None:
    grey = picture().convert("L")
    coloured = replace(PLAIN, grey=True, jitter=Jitter((3, 1, 2, 0), (1.2, 0.8, 1.2, 0.1)))
    view = render(grey, coloured)
    assert view.shape == (1, 48, 48)
    plain = Image.fromarray(render(grey, PLAIN)[0])
    assert np.array_equal(view[0], tv.adjust_brightness(tv.adjust_contrast(plain, 0.8), 1.2))


@given(sample=st.integers(0, 10**6), view=st.integers(0, 3))
def test_any_draw_of_any_view_can_be_rendered(sample: int, view: int) -> None:
    config = ViewsConfig(global_size=32, local_size=16, local_crops=2)
    image = picture(21, 13)
    chosen = draw(config, image.size, seed=0, epoch=0, sample=sample, view=view)
    side = 32 if view < 2 else 16
    assert render(image, chosen).shape == (3, side, side)
    assert render(image.convert("L"), chosen).shape == (1, side, side)


# --- the settings and the batch


def test_the_time_factors_are_those_of_the_paper() -> None:
    assert ViewsConfig(local_crops=10).time_factor == pytest.approx(3.84, abs=0.005)
    assert ViewsConfig(local_crops=6).time_factor == pytest.approx(3.10, abs=0.005)
    assert ViewsConfig(local_crops=0).time_factor == 2


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"split_scale": 0.04}, "local_scale_min 0.05 is above split_scale 0.04"),
        ({"aspect": (2.0, 1.0)}, "least, greatest"),
        ({"blur_sigma": (2.0, 0.1)}, "least, greatest"),
        ({"flip_probability": 1.5}, "less than or equal to 1"),
        ({"blur_probabilities": (1.0, 0.1, -1.0)}, "greater than or equal to 0"),
        ({"hue": 0.6}, "less than or equal to 0.5"),
        ({"global_size": 0}, "greater than or equal to 1"),
        ({"local_crop": 3}, "Extra inputs"),
    ],
)
def test_impossible_settings_are_refused_with_the_reason(
    wrong: dict[str, object], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        ViewsConfig.model_validate(wrong)


def batch(images: int = 4, crops: int = 3, channels: int = 3) -> Views:
    torch.manual_seed(0)
    large = torch.randint(0, 256, (2, images, channels, 8, 8), dtype=torch.uint8)
    return Views(large, torch.randint(0, 256, (crops, images, channels, 4, 4), dtype=torch.uint8))


@pytest.mark.parametrize("channels", [3, 1])
def test_normalised_views_equal_torchvision(channels: int) -> None:
    mean, std = [0.485, 0.456, 0.406][:channels], [0.229, 0.224, 0.225][:channels]
    views = batch(channels=channels)
    floats = views.normalise(mean, std)
    for ours, raw in ((floats.globals, views.globals), (floats.locals, views.locals)):
        theirs = tv.normalize(raw.float() / 255, mean, std)
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_one_mean_and_deviation_serve_all_channels() -> None:
    one, each = batch().normalise([0.5], [0.2]), batch().normalise([0.5] * 3, [0.2] * 3)
    torch.testing.assert_close(one.globals, each.globals)


@pytest.mark.parametrize("crops", [0, 3])
def test_micro_batches_joined_are_the_batch(crops: int) -> None:
    views = batch(crops=crops)
    parts = views.split(2)
    assert [part.globals.shape[1] for part in parts] == [2, 2]
    assert torch.equal(torch.cat([part.globals for part in parts], 1), views.globals)
    assert torch.equal(torch.cat([part.locals for part in parts], 1), views.locals)
    assert parts[0].normalise([0.5], [0.5]).locals.shape == (crops, 2, 3, 4, 4)


@pytest.mark.parametrize("parts", [3, 8, 0])
def test_an_uneven_split_is_refused_with_its_numbers(parts: int) -> None:
    with pytest.raises(UserError, match=f"batch of 4 images cannot be split into {parts}"):
        batch().split(parts)


def test_views_move_to_a_device() -> None:
    assert batch().to("meta").locals.device.type == "meta"
