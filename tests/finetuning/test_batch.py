"""Batches of labelled images: what is shown, in which order, with which label."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from attmask.data.batch import Request
from attmask.data.config import DataConfig
from attmask.data.feeding import new_reading
from attmask.data.source import Source
from attmask.finetuning.augment import Augment
from attmask.finetuning.batch import LabelledBatch, LabelledBatchMaker, RepeatedOrder
from attmask.finetuning.config import AugmentConfig, LabelsConfig
from attmask.finetuning.labels import find_classes
from tests.finetuning.sources import Numbers

PLAIN = AugmentConfig(auto_augment=None, color_jitter=0, erasing=0)


def maker(first_image: int = 0, images: int = 12) -> LabelledBatchMaker:
    source = Source(
        Path("DATA"), Numbers(images), range(images), np.arange(images) % 3, ("a", "b", "c")
    )
    classes = find_classes(source, {}, LabelsConfig())
    data = DataConfig()
    augment = Augment(PLAIN, data, size=8)
    return LabelledBatchMaker(source, classes, data, augment, 0, new_reading(0), first_image)


def made(request: Request, first_image: int = 0) -> LabelledBatch:
    batch = maker(first_image)[request]
    assert isinstance(batch, LabelledBatch)
    return batch


def test_images_come_with_their_own_labels() -> None:
    batch = made(Request(0, (5, 1, 9)))
    assert batch.labels.tolist() == [2, 1, 0]
    assert batch.samples.tolist() == [5, 1, 9]
    red = batch.images[:, 0].mean((1, 2)) * 0.229 + 0.485
    torch.testing.assert_close(red * 255, torch.tensor([5.0, 1.0, 9.0]), atol=1e-3, rtol=0)


def test_the_draws_of_an_image_follow_from_epoch_step_and_place_in_the_whole_batch() -> None:
    noisy = AugmentConfig(erasing=1.0, auto_augment=None, color_jitter=0)
    both = maker()
    two = LabelledBatchMaker(
        both.source, both.classes, both.data, Augment(noisy, both.data, size=8), 0, both.reading, 2
    )
    four = LabelledBatchMaker(
        both.source, both.classes, both.data, Augment(noisy, both.data, size=8), 0, both.reading, 0
    )
    whole = four[Request(1, (3, 4, 5, 6), 2)]
    second = two[Request(1, (5, 6), 2)]
    other = two[Request(1, (5, 6), 3)]
    assert isinstance(whole, LabelledBatch)
    assert isinstance(second, LabelledBatch)
    assert isinstance(other, LabelledBatch)
    assert torch.equal(whole.images[2:], second.images)
    assert not torch.equal(other.images, second.images)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_repeated_augmentation_gives_flowers_one_step_an_epoch(world: int) -> None:
    """The sampler keeps 1,792 of 2,040 images, and 892 are not a batch of 900."""
    orders = [RepeatedOrder(2040, 3, 900 // world, 0, rank, world) for rank in range(world)]
    assert [order.steps for order in orders] == [1] * world
    drawn = torch.cat([order(0)[0] for order in orders])
    assert len(drawn) == 900
    assert set(Counter(drawn.tolist()).values()) <= {1, 2, 3}
    assert len(set(drawn.tolist())) in range(300, 310)


def test_every_epoch_and_every_seed_draws_other_images() -> None:
    first = RepeatedOrder(512, 3, 16, 0, 0, 1)
    other = RepeatedOrder(512, 3, 16, 1, 0, 1)
    assert torch.equal(first(0)[3], first(0)[3])
    assert not torch.equal(first(0)[0], first(1)[0])
    assert not torch.equal(first(0)[0], other(0)[0])
