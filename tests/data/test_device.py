"""Colours made for a batch on a device against those that workers make, image by image."""

import numpy as np
import pytest
import torch
from torch import Tensor

from attmask.data.colours import Jitter, Look, recolour
from attmask.data.device import recolour_batch
from attmask.data.draws import draw
from attmask.data.views import ViewsConfig
from tests.photographs import photograph


def batch(images: int, side: int = 64, channels: int = 3) -> Tensor:
    pictures = [np.asarray(photograph(side, side, seed=seed)) for seed in range(images)]
    pixels = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    return pixels.repeat(1, 3, 1, 1)[:, :channels].contiguous()


def by_workers(pixels: Tensor, looks: list[Look]) -> Tensor:
    pictures = np.ascontiguousarray(pixels.permute(0, 2, 3, 1).numpy())
    changed = [recolour(picture, look) for picture, look in zip(pictures, looks, strict=True)]
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)


def levels_apart(ours: Tensor, theirs: Tensor) -> Tensor:
    return (ours.int() - theirs.int()).abs().float()


def only(step: int, factor: float) -> Jitter:
    factors = [1.0, 1.0, 1.0, 0.0]
    factors[step] = factor
    order = (step, *(other for other in range(4) if other != step))
    return Jitter(order, (factors[0], factors[1], factors[2], factors[3]))


@pytest.mark.parametrize("factor", [0.6, 0.93, 1.38])
@pytest.mark.parametrize("step", [0, 1])
def test_brightness_and_contrast_without_colours_are_equal(step: int, factor: float) -> None:
    pixels = batch(4, channels=1)
    looks = [Look(only(step, factor), grey=False, blur_sigma=None, solarise=False)] * 4
    assert levels_apart(recolour_batch(pixels, looks), by_workers(pixels, looks)).max() <= 1


@pytest.mark.parametrize("view", [0, 1, 2])
@pytest.mark.parametrize("channels", [3, 1, 4])
def test_any_draw_gives_the_pixels_that_workers_make_within_rounding(
    view: int, channels: int
) -> None:
    pixels = batch(48, side=48, channels=channels)
    looks = [
        draw(ViewsConfig(), (48, 48), seed=0, epoch=0, sample=sample, view=view).look
        for sample in range(48)
    ]
    apart = levels_apart(recolour_batch(pixels, looks), by_workers(pixels, looks))
    assert apart.mean() < 0.02
    assert (apart > 2).float().mean() < 2e-3  # where hues or contrasts round to either side


def test_images_that_take_no_step_stay_as_they_are() -> None:
    pixels = batch(4)
    plain = Look(jitter=None, grey=False, blur_sigma=None, solarise=False)
    looks = [plain, Look(only(0, 0.5), True, 1.0, True), plain, plain]
    changed = recolour_batch(pixels, looks)
    assert torch.equal(changed[[0, 2, 3]], pixels[[0, 2, 3]])
    assert not torch.equal(changed[1], pixels[1])
    assert changed.dtype == torch.uint8


def test_blurs_of_different_width_do_not_mix_images() -> None:
    pixels = batch(3)
    looks = [Look(None, False, sigma, False) for sigma in (0.1, 1.0, 2.0)]
    together = recolour_batch(pixels, looks)
    for image in range(3):
        alone = recolour_batch(pixels[image : image + 1], [looks[image]])
        assert levels_apart(together[image], alone[0]).max() <= 1
