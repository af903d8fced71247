"""Batches of images with their objects: padding, shared memory, parts and errors."""

from pathlib import Path

import numpy as np
import pytest
import torch

from attmask.data.batch import Request
from attmask.data.coco import open_boxed
from attmask.data.config import DataConfig
from attmask.data.feeding import BatchLoader, new_reading
from attmask.data.quarantine import Quarantine
from attmask.detection.augment import DetectAugment, DetectAugmentConfig
from attmask.detection.batch import DetectBatch, DetectBatchMaker
from attmask.errors import UserError
from attmask.models.detection.padding import padded
from tests.data.coco_files import an_image, an_object, write_coco

SMALL = DetectAugmentConfig(
    sizes=(30, 40, 50), longest=90, crop_sizes=(20, 30), crop_range=(12, 24)
)


def maker(folder: Path, *, first_image: int = 0, patch_size: int = 16) -> DetectBatchMaker:
    """Three images, the last of which has no objects."""
    if not (folder / "coco.json").exists():
        objects = [an_object(1, 1), an_object(2, 2, category_id=90), an_object(3, 2)]
        write_coco(folder / "coco.json", objects, [an_image(number) for number in (1, 2, 3)])
    images, data = open_boxed(folder / "coco.json")["train"], DataConfig()
    augment = DetectAugment(SMALL, data)
    return DetectBatchMaker(images, data, augment, patch_size, 0, new_reading(1), first_image)


def made(folder: Path, request: Request, **other: int) -> DetectBatch:
    batch = maker(folder, **other)[request]
    assert isinstance(batch, DetectBatch)
    return batch


def equal(one: DetectBatch, other: DetectBatch) -> bool:
    pairs = zip(one.tensors(), other.tensors(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def test_images_are_padded_at_the_right_and_at_the_bottom(tmp_path: Path) -> None:
    batch = made(tmp_path, Request(0, (0, 1, 2)))
    assert batch.samples.tolist() == [0, 1, 2]
    assert [len(each.labels) for each in batch.targets][2] == 0
    for image, truth in zip(batch.images, batch.targets, strict=True):
        height, width = truth.size_hw
        assert truth.masks.shape[1:] == (height, width)
        assert image[:, :height, :width].abs().min() > 0
        assert not image[:, height:].any()
        assert not image[:, :, width:].any()
    sides = [max(each.size_hw[axis] for each in batch.targets) for axis in (0, 1)]
    assert list(batch.images.shape[2:]) == [-(-side // 32) * 32 for side in sides]


@pytest.mark.parametrize(("patch_size", "side"), [(8, 64), (16, 64), (14, 224), (64, 64)])
def test_sides_are_multiples_of_the_stride_and_of_the_patch(patch_size: int, side: int) -> None:
    images = [torch.ones(1, 40, 33), torch.ones(1, 20, 64)]
    assert padded(images, patch_size).shape == (2, 1, side, side)


def test_draws_follow_from_epoch_step_and_place_in_the_whole_batch(tmp_path: Path) -> None:
    whole = made(tmp_path, Request(1, (0, 1, 1, 0), 2))
    second = made(tmp_path, Request(1, (1, 0), 2), first_image=2)
    for one, other in zip(whole.targets[2:], second.targets, strict=True):
        assert torch.equal(one.boxes, other.boxes)
    assert not equal(second, made(tmp_path, Request(1, (1, 0), 3), first_image=2))
    assert equal(second, made(tmp_path, Request(1, (1, 0), 2), first_image=2))


def test_a_part_is_some_images_with_their_objects_and_places(tmp_path: Path) -> None:
    whole = made(tmp_path, Request(0, (0, 1, 2)), first_image=6)
    part = whole.part(slice(1, 3))
    assert part.first_image == 7
    assert part.samples.tolist() == [1, 2]
    assert torch.equal(part.images, whole.images[1:])
    assert part.targets == whole.targets[1:]
    moved = part.to("meta")
    assert {tensor.device.type for tensor in moved.tensors()} == {"meta", "cpu"}
    assert moved.samples.device.type == "cpu"
    assert moved.images.is_meta
    assert moved.targets[0].masks.is_meta


def test_workers_hand_over_the_batches_of_one_process(tmp_path: Path) -> None:
    make = maker(tmp_path)
    samples = [torch.tensor([0, 1]), torch.tensor([2, 0])]
    loader = BatchLoader(
        make.images.source,
        make,
        lambda epoch: samples,
        steps_per_epoch=2,
        reading=make.reading,
        quarantine=Quarantine(None, 3, 1.0),
        workers=1,
    )
    batches = list(loader.epoch(0))
    loader.close()
    for step, batch in enumerate(batches):
        assert batch.images.is_shared()
        assert equal(batch, made(tmp_path, Request(0, tuple(samples[step].tolist()), step)))


def test_an_unreadable_image_is_replaced_with_its_objects(tmp_path: Path) -> None:
    make = maker(tmp_path)
    (tmp_path / "1.png").write_bytes(b"nothing")
    batch = make[Request(0, (0,))]
    assert isinstance(batch, DetectBatch)
    shown = int(batch.samples)
    assert shown in (1, 2)
    assert len(batch.unreadable) == 1
    labels = make.images.annotated(shown, (20, 12)).labels
    assert np.isin(batch.targets[0].labels.numpy(), labels).all()


def test_a_picture_of_another_size_is_an_error_that_is_handed_over(tmp_path: Path) -> None:
    make = maker(tmp_path)
    (tmp_path / "1.png").write_bytes((tmp_path / "2.png").read_bytes())
    assert isinstance(make[Request(0, (0,))], DetectBatch)
    write_coco(tmp_path / "other.json", [], [an_image(1, width=9)])
    error = make[Request(0, (0,))]
    assert isinstance(error, UserError)
    assert "1.png has 9 x 12 pixels, but 20 x 12" in str(error)
