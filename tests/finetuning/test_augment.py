"""Augmentation by timm: the same number gives the same image, and nothing else changes."""

import random

import numpy as np
import pytest
import torch
from PIL import Image
from timm.data import create_transform

from attmask.data.config import DataConfig
from attmask.finetuning.augment import Augment, seeded
from attmask.finetuning.config import AugmentConfig

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
STRONG = AugmentConfig(erasing=1.0)


def test_a_number_gives_timms_image_for_that_number() -> None:
    ours = Augment(STRONG, DataConfig(), size=24)(PIXELS, 7)
    transform = create_transform(
        24,
        is_training=True,
        auto_augment="rand-m9-mstd0.5-inc1",
        interpolation="bicubic",
        re_prob=1.0,
        re_mode="pixel",
    )
    with seeded(7):
        theirs = transform(Image.fromarray(PIXELS))
    assert torch.equal(ours, theirs)


def test_a_picture_of_which_no_bit_is_kept_is_black() -> None:
    """RandAugment of magnitude 10 does so, and m9-mstd0.5 in 1 of 44 of its posterized pictures."""
    always = AugmentConfig(auto_augment="rand-m10-n9-p1.0-inc1", erasing=0, color_jitter=0)
    augment = Augment(always, DataConfig(), size=16)
    seen = [augment(PIXELS, number) for number in range(40)]
    assert any(float(image.std((1, 2)).max()) == 0 for image in seen)


def test_numbers_give_different_images_and_each_the_same_again() -> None:
    augment = Augment(STRONG, DataConfig(), size=24)
    first, second = augment(PIXELS, 1), augment(PIXELS, 2)
    assert not torch.equal(first, second)
    assert torch.equal(first, augment(PIXELS, 1))


def test_the_generators_of_the_caller_are_left_alone() -> None:
    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state()
    Augment(STRONG, DataConfig(), size=24)(PIXELS, 3)
    assert random.getstate() == states[0]
    assert str(np.random.get_state()) == states[1]
    assert torch.equal(torch.get_rng_state(), states[2])


def test_grey_images_stay_grey_through_every_policy() -> None:
    augment = Augment(STRONG, DataConfig(channels=1), size=24)
    shown = augment(PIXELS[:, :, :1], 5)
    assert shown.shape == (1, 24, 24)
    assert shown.std() > 0


@pytest.mark.parametrize("channels", [2, 7])
def test_any_other_number_of_channels_is_cropped_flipped_and_erased(channels: int) -> None:
    config = AugmentConfig(auto_augment=None, color_jitter=0, erasing=1.0)
    pixels = np.repeat(PIXELS[:, :, :1], channels, axis=2)
    data = DataConfig(channels=channels, mean=(0.5,), std=(0.25,))
    shown = Augment(config, data, size=24)(pixels, 5)
    assert shown.shape == (channels, 24, 24)


def test_images_are_normalised_by_the_settings_of_the_data() -> None:
    plain = AugmentConfig(auto_augment=None, color_jitter=0, erasing=0, scale=(1, 1), ratio=(1, 1))
    white = np.full((20, 20, 3), 255, dtype=np.uint8)
    data = DataConfig(mean=(0.5, 0.4, 0.3), std=(0.5, 0.5, 0.25))
    shown = Augment(plain, data, size=16)(white, 0)
    torch.testing.assert_close(shown[:, 3, 3], torch.tensor([1.0, 1.2, 2.8]))
