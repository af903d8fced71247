"""Inference on whole images, against plain loops with a network whose answers depend on what a
window shows."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from attmask.evaluation.segmentation import inference
from attmask.evaluation.segmentation.inference import (
    Inference,
    InferenceConfig,
    window_starts,
)
from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.upernet import Segmenter, SegmenterConfig

CLASSES, PATCH = 7, 8
MIX = torch.randn(CLASSES, 3, generator=torch.Generator().manual_seed(0))


def network(images: Tensor) -> Tensor:
    """Logits at a quarter of the size that depend on colours, on the window and on the place."""
    assert all(side % PATCH == 0 for side in images.shape[-2:])
    small = F.avg_pool2d(images, 4)
    places = torch.linspace(0, 2, small.shape[-1]) * torch.linspace(-1, 1, small.shape[-2])[:, None]
    context = images.mean((2, 3))[:, :, None, None]
    return torch.einsum("kc,bchw->bkhw", MIX, 3 * small - 5 * context + places)


def picture(height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(height * 1000 + width)
    coarse = torch.randn(1, 3, 5, 6, generator=generator)
    return F.interpolate(coarse, size=(height, width), mode="bicubic")[0]


def bilinear(maps: Tensor, size_hw: tuple[int, ...]) -> Tensor:
    return F.interpolate(maps[None], size=size_hw, mode="bilinear", align_corners=False)[0]


def of(**options: Any) -> Inference:
    return Inference(network, PATCH, InferenceConfig(**options))


def padded_logits(image: Tensor) -> Tensor:
    """Of a whole image at its own size, padded by hand."""
    _, height, width = image.shape
    padded = torch.zeros(3, -(-height // PATCH) * PATCH, -(-width // PATCH) * PATCH)
    padded[:, :height, :width] = image
    return bilinear(network(padded[None])[0], tuple(padded.shape[1:]))[:, :height, :width]


def slid_logits(image: Tensor, crop: int, stride: int) -> Tensor:
    """One window after the other, and one pixel's count after the other."""
    _, height, width = image.shape
    total, count = torch.zeros(CLASSES, height, width), torch.zeros(height, width)
    for row in range(max(height - crop + stride - 1, 0) // stride + 1):
        for column in range(max(width - crop + stride - 1, 0) // stride + 1):
            bottom = min(row * stride + crop, height)
            right = min(column * stride + crop, width)
            top, left = max(bottom - crop, 0), max(right - crop, 0)
            total[:, top:bottom, left:right] += padded_logits(image[:, top:bottom, left:right])
            count[top:bottom, left:right] += 1
    return total / count


def close(ours: Tensor, plain: Tensor) -> None:
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


# --- whole images


@pytest.mark.parametrize("size_hw", [(32, 48), (37, 50), (5, 61), (8, 8)])
@pytest.mark.parametrize("original_hw", [(32, 48), (61, 83), (20, 9)])
def test_a_whole_image_of_any_size(size_hw: tuple[int, int], original_hw: tuple[int, int]) -> None:
    image = picture(*size_hw)
    logits = bilinear(padded_logits(image), original_hw)
    close(of(mode="whole").probabilities(image, original_hw), logits.softmax(0))
    assert torch.equal(of(mode="whole").labels(image, original_hw), logits.argmax(0))


def test_probabilities_of_a_pixel_add_up_to_one() -> None:
    found = of(crop=24, stride=16, flip=True, scales=(0.5, 1.0)).probabilities(
        picture(37, 50), (74, 99)
    )
    assert found.shape == (CLASSES, 74, 99)
    close(found.sum(0), torch.ones(74, 99))
    assert found.min() >= 0


# --- windows


@pytest.mark.parametrize(
    "size_hw",
    [(64, 96), (50, 77), (77, 50), (32, 33), (20, 90), (90, 13), (9, 11)],
)
@pytest.mark.parametrize(("crop", "stride"), [(32, 21), (24, 24), (32, 8), (30, 17)])
def test_windows_equal_plain_loops(size_hw: tuple[int, int], crop: int, stride: int) -> None:
    image = picture(*size_hw)
    logits = bilinear(slid_logits(image, crop, stride), (60, 90))
    for batch in (1, 3, 100):
        slide = of(mode="slide", crop=crop, stride=stride, batch=batch)
        close(slide.probabilities(image, (60, 90)), logits.softmax(0))
        assert (slide.labels(image, (60, 90)) == logits.argmax(0)).float().mean() > 0.999


def test_windows_side_by_side_are_tiles() -> None:
    image = picture(64, 96)
    rows = [
        torch.cat([padded_logits(tile) for tile in band.split(32, dim=2)], dim=2)
        for band in image.split(32, dim=1)
    ]
    tiled = of(mode="slide", crop=32, stride=32).probabilities(image, (64, 96))
    close(tiled, torch.cat(rows, dim=1).softmax(0))
    assert not torch.allclose(tiled, of(mode="whole").probabilities(image, (64, 96)), atol=0.01)


def test_an_image_within_one_window_is_shown_whole() -> None:
    image = picture(37, 50)
    slide, whole = of(mode="slide", crop=64, stride=40), of(mode="whole")
    assert torch.equal(slide.probabilities(image, (37, 50)), whole.probabilities(image, (37, 50)))


@given(size=st.integers(1, 300), crop=st.integers(1, 120), stride=st.integers(1, 120))
def test_windows_lie_inside_and_cover_every_pixel(size: int, crop: int, stride: int) -> None:
    stride = min(stride, crop)
    starts = window_starts(size, crop, stride)
    assert starts[0] == 0
    assert starts[-1] + min(crop, size) == size
    assert all(0 < b - a <= stride for a, b in itertools.pairwise(starts))
    assert len(starts) == max(size - crop + stride - 1, 0) // stride + 1


def test_windows_of_the_paper_along_a_common_side() -> None:
    assert window_starts(512, 512, 341) == [0]
    assert window_starts(683, 512, 341) == [0, 171]
    assert window_starts(1100, 512, 341) == [0, 341, 588]


def test_at_most_a_batch_of_windows_goes_through_the_network() -> None:
    seen = []

    def counting(images: Tensor) -> Tensor:
        seen.append(len(images))
        return network(images)

    Inference(counting, PATCH, InferenceConfig(crop=16, stride=16, batch=3)).labels(
        picture(32, 64), (32, 64)
    )
    assert seen == [3, 3, 2]


# --- flips and scales


def test_flips_average_probabilities_with_those_of_the_mirror_image() -> None:
    image = picture(50, 77)
    plain, flipped = (
        bilinear(slid_logits(shown, 32, 21), (60, 90)).softmax(0)
        for shown in (image, image.flip(-1))
    )
    found = of(crop=32, stride=21, flip=True).probabilities(image, (60, 90))
    close(found, (plain + flipped.flip(-1)) / 2)
    assert not torch.allclose(plain, flipped.flip(-1), atol=0.01)


def test_a_mirror_image_has_mirrored_probabilities() -> None:
    image, both = picture(50, 77), of(crop=32, stride=21, flip=True)
    found = both.probabilities(image.flip(-1), (60, 90)).flip(-1)
    close(found, both.probabilities(image, (60, 90)))


def test_scales_and_flips_average_the_probabilities_of_all() -> None:
    image, wanted = picture(41, 60), []
    for size_hw in ((21, 30), (41, 60), (62, 90)):  # halves are rounded up
        for flip in (False, True):
            shown = bilinear(image, size_hw)
            logits = slid_logits(shown.flip(-1) if flip else shown, 32, 21)
            found = bilinear(logits, (82, 120)).softmax(0)
            wanted.append(found.flip(-1) if flip else found)
    several = of(crop=32, stride=21, flip=True, scales=(0.5, 1.0, 1.5))
    mean = torch.stack(wanted).mean(0)
    close(several.probabilities(image, (82, 120)), mean)
    assert (several.labels(image, (82, 120)) == mean.argmax(0)).float().mean() > 0.999


# --- memory and precision


@settings(max_examples=20)
@given(chunk=st.integers(1, 60 * 90 * 8))
def test_classes_are_resized_some_at_a_time_without_a_difference(chunk: int) -> None:
    image, slide = picture(50, 77), of(crop=32, stride=21, flip=True)
    one = of(crop=32, stride=21)
    wanted = slide.probabilities(image, (60, 90)), one.labels(image, (60, 90))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "_CHUNK", chunk)
        close(slide.probabilities(image, (60, 90)), wanted[0])
        assert torch.equal(one.labels(image, (60, 90)), wanted[1])


def test_large_logits_lose_no_precision() -> None:
    def loud(images: Tensor) -> Tensor:
        return 10_000 + 1000 * network(images)

    image = picture(32, 48)
    found = Inference(loud, PATCH, InferenceConfig(mode="whole")).probabilities(image, (32, 48))
    close(found, bilinear(loud(image[None])[0], (32, 48)).softmax(0))


def test_logits_of_half_precision_are_added_in_single() -> None:
    def rounded(images: Tensor) -> Tensor:
        return network(images).bfloat16()

    image, config = picture(50, 77), InferenceConfig(crop=32, stride=21)
    found = Inference(rounded, PATCH, config).probabilities(image, (60, 90))
    assert found.dtype == torch.float32
    plain = of(crop=32, stride=21).probabilities(image, (60, 90))
    torch.testing.assert_close(found, plain, rtol=0.1, atol=0.05)


@pytest.mark.parametrize("patch_size", [8, 14, 16])
def test_a_segmenter_classifies_an_image_of_any_size(patch_size: int) -> None:
    torch.manual_seed(0)
    config = BackboneConfig(patch_size=patch_size, width=24, depth=2, heads=3, init_std=0.2)
    backbone = build_backbone(config, image_size=4 * patch_size, channels=3)
    segmenter = Segmenter(backbone, CLASSES, SegmenterConfig(channels=8)).eval()
    slide = Inference(segmenter.logits, patch_size, InferenceConfig(crop=48, stride=32))
    found = slide.probabilities(picture(50, 77), (60, 90))
    assert not found.requires_grad
    close(found.sum(0), torch.ones(60, 90))


# --- settings and sizes


@pytest.mark.parametrize(
    "options",
    [{"crop": 32, "stride": 33}, {"scales": ()}, {"scales": (0.0,)}, {"mode": "both"}],
)
def test_impossible_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        InferenceConfig(**options)
