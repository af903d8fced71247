from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as reference

from attmask.evaluation.features.crops import (
    CenterCrop,
    Crop,
    RandomResizedCrop,
    Resampling,
    as_tensor,
    center_crop,
    crop_pixels,
    resized,
)
from tests.photographs import photograph


@settings(max_examples=40, deadline=None)
@given(width=st.integers(20, 300), height=st.integers(20, 300), size=st.sampled_from([32, 48, 224]))
def test_the_crop_equals_torchvisions_resize_and_centre_crop(
    width: int, height: int, size: int
) -> None:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    resize = transforms.Resize(
        round(size * 256 / 224), interpolation=transforms.InterpolationMode.BICUBIC
    )
    expected = transforms.CenterCrop(size)(resize(image))
    assert np.array_equal(np.asarray(center_crop(image, size)), np.asarray(expected))


def test_a_photograph_for_224_is_resized_to_256() -> None:
    halves = np.zeros((256, 512, 3), np.uint8)
    halves[:, 256:] = 255
    crop = np.asarray(center_crop(Image.fromarray(halves), 224))
    assert crop.shape == (224, 224, 3)
    assert np.array_equal(crop, halves[16:240, 144:368])


@pytest.mark.parametrize("shape", [(2, 20_000), (20_000, 1)])
def test_a_very_long_picture_is_not_resized_as_a_whole_for_its_middle(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    resize = Image.Image.resize

    def noted(image: Image.Image, size: tuple[int, int], *others: Any) -> Image.Image:
        sizes.append(size)
        return resize(image, size, *others)

    monkeypatch.setattr(Image.Image, "resize", noted)
    position = np.linspace(0, 255, max(shape)).astype(np.uint8)
    ramp = np.broadcast_to(position if shape[0] < shape[1] else position[:, None], shape)
    crop = crop_pixels(ramp[:, :, None], 32).float()
    assert crop.shape == (1, 32, 32)
    assert (crop - 127.5).abs().max() <= 1
    assert max(sizes[0]) <= 16 * min(sizes[0])


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_come_channels_first(channels: int) -> None:
    shape = (4, 5) if channels == 1 else (4, 5, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    assert np.array_equal(as_tensor(Image.fromarray(pixels)).numpy(), expected)


def test_a_flipped_crop_is_the_mirror_of_the_plain_one() -> None:
    pixels = np.asarray(photograph(50, 40))
    plain, flipped = CenterCrop(32)(pixels, 0), CenterCrop(32, flipped=True)(pixels, 0)
    assert torch.equal(plain, crop_pixels(pixels, 32))
    assert torch.equal(flipped, plain.flip(-1))
    assert not torch.equal(flipped, plain)


def gradient(height: int, width: int) -> np.ndarray:
    """A picture whose pixels say where they were: down in red, across in green."""
    down, across = np.mgrid[0:height, 0:width]
    blue = np.zeros((height, width))
    return np.stack([down * 255 / height, across * 255 / width, blue], 2).astype(np.uint8)


def test_a_view_is_a_part_of_the_picture_no_smaller_than_asked() -> None:
    pixels = gradient(120, 160)
    shares, flipped = [], 0
    for index in range(200):
        red, green, _ = RandomResizedCrop(32, 0.5)(pixels, index).float()
        tall = (red[-1].mean() - red[0].mean()) / 255 * 32 / 31
        wide = (green[:, -1].mean() - green[:, 0].mean()) / 255 * 32 / 31
        flipped += int(wide < 0)
        shares.append(float(tall * wide.abs()))
    assert 0.45 < min(shares) < 0.6
    assert 0.9 < max(shares) < 1.05
    assert 70 < flipped < 130, "about one half"


def test_views_are_drawn_by_seed_view_and_image() -> None:
    pixels = gradient(40, 50)
    first = RandomResizedCrop(16, 0.25)(pixels, 3)
    assert torch.equal(first, RandomResizedCrop(16, 0.25)(pixels.copy(), 3))
    for other, index in (
        (RandomResizedCrop(16, 0.25, view=1), 3),
        (RandomResizedCrop(16, 0.25, seed=1), 3),
        (RandomResizedCrop(16, 0.25), 4),
    ):
        assert not torch.equal(first, other(pixels, index))
        assert index == 4 or other.describe() != RandomResizedCrop(16, 0.25).describe()


@pytest.mark.parametrize("shape", [(1, 1, 3), (1, 300, 3), (20, 20, 1), (20, 20, 6)])
def test_a_view_has_its_size_whatever_the_picture(shape: tuple[int, int, int]) -> None:
    for resampling in get_args(Resampling):
        view = RandomResizedCrop(16, 0.25, view=1, resampling=resampling)
        assert view(np.full(shape, 9, np.uint8), 0).shape == (shape[2], 16, 16)
        assert view.size_hw == (16, 16)


@given(
    width=st.integers(3, 90),
    height=st.integers(3, 90),
    size=st.sampled_from([8, 32]),
    share=st.floats(0.2, 1),
)
def test_a_crop_is_resized_as_torchvision_does_it(
    width: int, height: int, size: int, share: float
) -> None:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    w, h = max(1, int(width * share)), max(1, int(height * share))
    left, top = width - w, (height - h) // 2
    crop = resized(pixels[top : top + h, left : left + w], (size, size))
    expected = reference.resized_crop(
        Image.fromarray(pixels), top, left, h, w, [size, size], InterpolationMode.BILINEAR
    )
    assert np.array_equal(crop.permute(1, 2, 0).numpy(), np.asarray(expected))


def test_crops_are_drawn_by_epoch_and_image_and_half_of_them_are_flipped() -> None:
    ramp = np.repeat(np.arange(0, 240, 5, dtype=np.uint8)[None, :, None], 48, axis=0)
    pixels = ramp.repeat(3, axis=2)

    def crop(epoch: int) -> Tensor:
        return RandomResizedCrop(16, 0.08, epoch=epoch, resampling="bilinear")(pixels, 0)

    crops = [crop(epoch) for epoch in range(200)]
    assert torch.equal(crop(7), crops[7])
    assert len({tuple(c.flatten().tolist()) for c in crops}) > 150
    rising = sum(int(c[0, 0, -1]) > int(c[0, 0, 0]) for c in crops)
    assert 75 < rising < 125
    extents = [abs(int(c[0, 0, -1]) - int(c[0, 0, 0])) / 235 for c in crops]
    assert min(extents) < 0.4
    assert max(extents) > 0.9


def test_every_field_of_a_crop_is_in_its_description() -> None:
    crops: list[Crop] = [
        CenterCrop(32),
        CenterCrop(40),
        CenterCrop(32, flipped=True),
        RandomResizedCrop(32, 0.25),
        RandomResizedCrop(32, 0.5),
        RandomResizedCrop(32, 0.25, epoch=1),
        RandomResizedCrop(32, 0.25, resampling="bilinear"),
    ]
    assert len({str(crop.describe()) for crop in crops}) == len(crops)
