import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import ColorJitter, RandomResizedCrop

from attmask.data.draws import ViewParameters, draw
from attmask.data.views import ViewsConfig

SIZE = (320, 240)


def draws(view: int, count: int, config: ViewsConfig | None = None) -> list[ViewParameters]:
    config = config or ViewsConfig()
    return [draw(config, SIZE, seed=0, epoch=0, sample=i, view=view) for i in range(count)]


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
            "jitter": (0.8, [p.look.jitter is not None for p in made]),
            "grey": (0.2, [p.look.grey for p in made]),
            "blur": (blur, [p.look.blur_sigma is not None for p in made]),
            "solarise": (solarise, [p.look.solarise for p in made]),
        }
        for name, (rate, seen) in rates.items():
            allowed = 4 * math.sqrt(rate * (1 - rate) / count)
            assert abs(np.mean(seen) - rate) <= allowed, (view, name)


def test_the_strength_of_the_blur_is_uniform() -> None:
    sigmas = [p.look.blur_sigma for p in draws(0, 3000) if p.look.blur_sigma is not None]
    assert farthest_apart(sigmas, np.linspace(0.1, 2.0, 3000).tolist()) < 0.03


def test_colour_factors_have_the_distribution_of_torchvision() -> None:
    count = 3000
    torch.manual_seed(0)
    rule = ColorJitter(0.4, 0.4, 0.2, 0.1)
    theirs = [
        ColorJitter.get_params(rule.brightness, rule.contrast, rule.saturation, rule.hue)[1:]
        for _ in range(count)
    ]
    ours = [p.look.jitter for p in draws(0, count) if p.look.jitter is not None]
    for place in range(4):
        samples = [j.factors[place] for j in ours], [float(t[place]) for t in theirs]
        allowed = 1.95 * math.sqrt(1 / len(ours) + 1 / count)
        assert farthest_apart(*samples) < allowed, place


def test_all_orders_of_the_colour_steps_are_equally_likely() -> None:
    orders = Counter(p.look.jitter.order for p in draws(0, 3000) if p.look.jitter is not None)
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
        assert changed == replace(usual, look=replace(usual.look, blur_sigma=None), flip=True)
