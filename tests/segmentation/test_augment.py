"""Random changes of images and masks: both change alike, and a number always gives the same."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from attmask.data.config import DataConfig
from attmask.data.masks import IGNORED
from attmask.data.resize import resized_labels
from attmask.segmentation.augment import SegmentAugment, SegmentAugmentConfig

UNIT = DataConfig(mean=(0.0,), std=(1.0,))
PLAIN = SegmentAugmentConfig(scale=(1.0, 1.0), flip=0.0, photometric=0.0)


def pair(height: int, width: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """An image whose red is a smooth function of its labels, which are large blocks."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 5, (height // 8 + 1, width // 8 + 1))
    labels = np.kron(blocks, np.ones((8, 8), np.int64))[:height, :width].astype(np.int16)
    pixels = np.repeat((labels * 50)[:, :, None], 3, axis=2).astype(np.uint8)
    return pixels, labels


@pytest.mark.parametrize(
    ("size_hw", "expected_hw"),
    [
        ((512, 683), (512, 683)),
        ((683, 512), (683, 512)),
        ((256, 341), (512, 682)),
        ((300, 1000), (512, 1707)),
        ((300, 3000), (205, 2048)),  # the long side decides
    ],
)
def test_images_are_resized_to_fit_512_by_2048(
    size_hw: tuple[int, int], expected_hw: tuple[int, int]
) -> None:
    augment = SegmentAugment(PLAIN, UNIT, size=2048)
    augment.long_short = 2048, 512
    _, labels = augment(*pair(*size_hw), 0)
    shown = labels.numpy() != IGNORED
    assert (shown.any(1).sum(), shown.any(0).sum()) == expected_hw


def test_sides_follow_from_the_crop_unless_they_are_set() -> None:
    assert SegmentAugment(PLAIN, UNIT, size=512).long_short == (2048, 512)
    other = SegmentAugmentConfig(short_side=100, long_side=150)
    assert SegmentAugment(other, UNIT, size=512).long_short == (150, 100)


def test_scales_are_uniform_between_their_limits() -> None:
    config = SegmentAugmentConfig(flip=0.0, photometric=0.0)
    augment = SegmentAugment(config, UNIT, size=64)
    augment.size = 200  # larger than any image, so that its size shows
    pixels, labels = pair(64, 64)
    sides = [
        int((augment(pixels, labels, number)[1] != IGNORED).any(1).sum()) for number in range(300)
    ]
    assert min(sides) in range(32, 35)
    assert max(sides) in range(125, 129)
    assert np.mean(sides) == pytest.approx(80, abs=5)


def test_image_and_labels_change_alike() -> None:
    """The red of a pixel tells its class, but for the edges of blocks, where colours mix."""
    config = SegmentAugmentConfig(photometric=0.0)
    augment = SegmentAugment(config, UNIT, size=48)
    for number in range(20):
        image, labels = augment(*pair(60, 90), number)
        shown = labels >= 0
        told = (image[0] * 255 / 50).round().long()
        assert (told == labels)[shown].float().mean() > 0.8
        padding = image[:, ~shown]
        assert torch.equal(padding, torch.zeros_like(padding))


def test_labels_are_never_mixed_and_keep_their_place() -> None:
    labels = np.zeros((6, 6), np.int16)
    labels[:, 3:] = 4
    for side in (2, 4, 10, 14):
        found = resized_labels(labels, (side, side))
        centres = (np.arange(side) + 0.5) * 6 / side
        assert found[0].tolist() == [0 if centre < 3 else 4 for centre in centres]


def test_a_number_gives_the_same_again_and_others_give_others() -> None:
    augment = SegmentAugment(SegmentAugmentConfig(), DataConfig(), size=32)
    sample = pair(50, 70)
    first, again, other = (augment(*sample, number) for number in (1, 1, 2**63 + 5))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_global_generators_are_left_alone() -> None:
    state = str(np.random.get_state())
    SegmentAugment(SegmentAugmentConfig(), DataConfig(), size=32)(*pair(50, 70), 1)
    assert str(np.random.get_state()) == state


def test_half_of_the_images_are_flipped() -> None:
    config = SegmentAugmentConfig(scale=(1.0, 1.0), photometric=0.0)
    augment = SegmentAugment(config, UNIT, size=16)
    pixels, labels = pair(16, 16)
    flipped = [
        torch.equal(augment(pixels, labels, number)[1], torch.from_numpy(labels[:, ::-1].copy()))
        for number in range(200)
    ]
    assert 0.4 < np.mean(flipped) < 0.6


def one_small_object() -> tuple[np.ndarray, np.ndarray]:
    labels = np.zeros((32, 64), np.int16)
    labels[:, 56:] = 1
    return np.zeros((32, 64, 3), np.uint8), labels


def test_crops_of_nearly_one_class_are_drawn_again() -> None:
    """A quarter of a crop is object only at the right edge: in 1 of 33 places, or with ten more
    attempts in about 1 of 4."""
    shares = {}
    for most in (0.76, 1.0):
        config = PLAIN.model_copy(update={"most_of_one_class": most})
        augment = SegmentAugment(config, UNIT, size=32)
        crops = [augment(*one_small_object(), number)[1] for number in range(300)]
        shares[most] = np.mean([float((crop == 1).float().mean()) >= 0.25 for crop in crops])
    assert shares[1.0] < 0.08
    assert 0.18 < shares[0.76] < 0.4


def test_pixels_without_a_class_do_not_count_for_the_share_of_one_class() -> None:
    augment = SegmentAugment(PLAIN, UNIT, size=4)
    labels = np.array([[IGNORED] * 12 + [0, 0, 1, 1]], np.int16)
    assert augment._is_varied(labels)
    assert not augment._is_varied(np.array([[0, 0, 0, 1]], np.int16))
    assert not augment._is_varied(np.array([[0, 0, 0, 0]], np.int16))
    assert not augment._is_varied(np.array([[IGNORED, IGNORED]], np.int16))


def test_images_are_normalised_by_the_settings_of_the_data() -> None:
    data = DataConfig(mean=(0.5, 0.4, 0.3), std=(0.5, 0.5, 0.25))
    white = np.full((16, 16, 3), 255, np.uint8)
    image, _ = SegmentAugment(PLAIN, data, size=16)(white, np.zeros((16, 16), np.int16), 0)
    torch.testing.assert_close(image[:, 3, 3], torch.tensor([1.0, 1.2, 2.8]))


@pytest.mark.parametrize("channels", [1, 2, 7])
def test_any_number_of_channels_is_resized_cropped_and_flipped(channels: int) -> None:
    pixels, labels = pair(40, 60)
    many = np.repeat(pixels[:, :, :1], channels, axis=2)
    data = DataConfig(channels=channels, mean=(0.0,), std=(1.0,))
    plain = SegmentAugmentConfig(photometric=0.0)
    image, found = SegmentAugment(SegmentAugmentConfig(), data, size=32)(many, labels, 3)
    three, same = SegmentAugment(plain, UNIT, size=32)(pixels, labels, 3)
    assert image.shape == (channels, 32, 32)
    assert torch.equal(found, same)
    for channel in image:
        assert torch.equal(channel, three[0])


def test_settings_that_make_no_sense_are_refused() -> None:
    for scale in ((2.0, 0.5), (0.0, 1.0)):
        with pytest.raises(ValidationError, match="does not rise"):
            SegmentAugmentConfig(scale=scale)
