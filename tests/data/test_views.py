import pytest
import torch
import torchvision.transforms.functional as tv
from pydantic import ValidationError

from attmask.data.views import Views, ViewsConfig
from attmask.errors import UserError


def test_the_time_factors_are_those_of_the_paper() -> None:
    assert ViewsConfig(local_crops=10).time_factor == pytest.approx(3.84, abs=0.005)
    assert ViewsConfig(local_crops=6).time_factor == pytest.approx(3.10, abs=0.005)
    assert ViewsConfig(local_crops=0).time_factor == 2


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"blur_sigma": (0.1, 1e6)}, "from 0 to 100"),
        ({"split_scale": 0.04}, "local_scale_min=0.05 is above views.split_scale=0.04"),
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


def test_one_mean_and_std_serve_all_channels() -> None:
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
