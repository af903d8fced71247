import cv2
import numpy as np
import pytest
import torch

from attmask.evaluation.features.short_side import ShortSide


@pytest.mark.parametrize(
    ("crop", "frame_hw", "expected"),
    [
        (ShortSide(480, 64, 16), (480, 854), (480, 832)),  # as in DINO
        (ShortSide(480, 64, 8), (480, 854), (480, 832)),
        (ShortSide(480, 64, 16), (1080, 1920), (480, 832)),
        (ShortSide(480, 64, 16), (854, 480), (832, 480)),
        (ShortSide(480, 64, 16), (500, 500), (480, 448)),  # DINO shortens squares too
        (ShortSide(480, 14, 14), (480, 854), (476, 840)),
        (ShortSide(32, 64, 8), (48, 80), (32, 48)),  # less than one multiple: whole patches
    ],
)
def test_sizes_are_whole_patches_and_the_longer_side_a_multiple(
    crop: ShortSide, frame_hw: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert crop.shown_hw(frame_hw) == expected
    assert crop(np.zeros((*frame_hw, 3), dtype=np.uint8), 0).shape == (3, *expected)


def test_frames_are_resized_bilinearly_without_antialiasing() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (96, 200, 3)).astype(np.uint8)
    expected = cv2.resize(pixels, (128, 64), interpolation=cv2.INTER_LINEAR)
    found = ShortSide(64, 64, 16)(pixels, 0)
    assert torch.equal(found, torch.from_numpy(expected).permute(2, 0, 1))


def test_frames_may_have_any_number_of_channels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 64, 7)).astype(np.uint8)
    assert ShortSide(32, 16, 16)(pixels, 0).shape == (7, 32, 48)


def test_its_description_has_all_that_the_pixels_depend_on() -> None:
    assert ShortSide(480, 64, 16).describe() == {
        "crop": "short side",
        "shorter_side": 480,
        "multiple": 64,
        "patch_size": 16,
    }
    assert ShortSide(480, 64, 16).size_hw is None
