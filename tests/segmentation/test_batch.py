"""Batches of images with the class of each pixel: what is shown, and what stops a training."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attmask.data.batch import Request
from attmask.data.config import DataConfig
from attmask.data.feeding import AnyBatch, BatchLoader, new_reading
from attmask.data.masks import IGNORED, MasksConfig, open_masked
from attmask.data.quarantine import Quarantine
from attmask.errors import UserError
from attmask.segmentation.augment import SegmentAugment, SegmentAugmentConfig
from attmask.segmentation.batch import SegmentBatch, SegmentBatchMaker
from tests.real_data import FOLDER, needs

PLAIN = SegmentAugmentConfig(scale=(1.0, 1.0), flip=0.0, photometric=0.0)
UNIT = DataConfig(mean=(0.0,), std=(1.0,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images; the number of each is its class at the left and a tenth of its values."""
    for number in range(5):
        values = np.full((8, 8), number, np.uint8)
        values[:, 4:] = 0
        for kind, pixels in (
            ("images", np.full((8, 8, 3), 10 * number, np.uint8)),
            ("masks", values),
        ):
            (tmp_path / kind).mkdir(exist_ok=True)
            Image.fromarray(pixels).save(tmp_path / kind / f"{number}.png")
    return tmp_path


def maker(
    folder: Path, first_image: int = 0, config: SegmentAugmentConfig = PLAIN
) -> SegmentBatchMaker:
    masked = open_masked(folder, MasksConfig(classes=5))["train"]
    augment = SegmentAugment(config, UNIT, size=8)
    return SegmentBatchMaker(masked, UNIT, augment, 0, new_reading(0), first_image)


def made(maker: SegmentBatchMaker, request: Request) -> SegmentBatch:
    batch = maker[request]
    assert isinstance(batch, SegmentBatch)
    return batch


def test_images_come_with_their_own_masks(folder: Path) -> None:
    batch = made(maker(folder), Request(0, (3, 1)))
    assert isinstance(batch, AnyBatch)
    assert batch.samples.tolist() == [3, 1]
    assert batch.targets[:, 0, 0].tolist() == [3, 1]
    assert batch.targets[:, 0, 7].tolist() == [0, 0]
    torch.testing.assert_close(batch.images[:, 0, 0, 0] * 255, torch.tensor([30.0, 10.0]))


def test_the_draws_of_an_image_follow_from_epoch_step_and_place_in_the_whole_batch(
    folder: Path,
) -> None:
    config = SegmentAugmentConfig()
    whole = made(maker(folder, 0, config), Request(1, (1, 2, 3, 4), 2))
    second = maker(folder, 2, config)
    own = made(second, Request(1, (3, 4), 2))
    assert torch.equal(whole.images[2:], own.images)
    assert torch.equal(whole.targets[2:], own.targets)
    for other in (Request(1, (3, 4), 3), Request(2, (3, 4), 2)):
        assert not torch.equal(made(second, other).images, own.images)


def test_parts_are_micro_batches_that_know_their_place(folder: Path) -> None:
    batch = made(maker(folder, 10), Request(0, (0, 1, 2, 3)))
    part = batch.part(slice(2, 4))
    assert part.first_image == 12
    assert part.samples.tolist() == [2, 3]
    assert torch.equal(part.images, batch.images[2:])
    assert torch.equal(part.targets, batch.targets[2:])
    assert batch.part(slice(None)).first_image == 10


def test_on_a_device_classes_are_numbers_that_the_loss_takes(folder: Path) -> None:
    batch = made(maker(folder), Request(0, (1,)))
    moved = batch.to(torch.device("cpu"))
    assert batch.targets.dtype == torch.int16
    assert moved.targets.dtype == torch.int64
    torch.nn.functional.cross_entropy(torch.zeros(1, 5, 8, 8), moved.targets)


def test_worker_processes_make_the_batches_of_none(folder: Path) -> None:
    def images(workers: int) -> list[torch.Tensor]:
        own = replace(maker(folder, 0, SegmentAugmentConfig()), reading=new_reading(workers))
        loader = BatchLoader(
            own.masked.source,
            own,
            lambda epoch: [torch.tensor([epoch, 3]), torch.tensor([1, 4])],
            steps_per_epoch=2,
            reading=own.reading,
            quarantine=Quarantine(None, 5, 0.01),
            workers=workers,
        )
        try:
            return [batch.images for epoch in range(2) for batch in loader.epoch(epoch)]
        finally:
            loader.close()

    for alone, together in zip(images(0), images(2), strict=True):
        assert torch.equal(alone, together)


def test_an_unreadable_image_is_replaced_with_its_mask(folder: Path) -> None:
    (folder / "images" / "2.png").write_bytes(b"damaged")
    batch = made(maker(folder), Request(0, (2, 4)))
    replaced = int(batch.samples[0])
    assert replaced != 2
    assert int(batch.targets[0, 0, 0]) == replaced
    assert len(batch.unreadable) == 1
    assert "2.png" in batch.unreadable[0]


def test_an_unreadable_mask_is_an_error(folder: Path) -> None:
    (folder / "masks" / "2.png").write_bytes(b"damaged")
    error = maker(folder)[Request(0, (1, 2))]
    assert isinstance(error, UserError)
    assert f"cannot read the mask {folder / 'masks' / '2.png'}" in str(error)


def test_an_image_that_is_turned_upright_wants_a_mask_that_is(folder: Path) -> None:
    image = Image.new("RGB", (6, 4))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(folder / "images" / "2.png", exif=exif)
    Image.fromarray(np.zeros((4, 6), np.uint8)).save(folder / "masks" / "2.png")
    error = maker(folder)[Request(0, (2,))]
    assert "turn the mask alike" in str(error)
    Image.fromarray(np.zeros((6, 4), np.uint8)).save(folder / "masks" / "2.png")
    assert made(maker(folder), Request(0, (2,))).samples.tolist() == [2]


@needs("camvid")
def test_batches_of_camvid_have_every_pixel_labelled_or_ignored() -> None:
    masked = open_masked(FOLDER / "camvid", MasksConfig(ignored=(11,), classes=11))["train"]
    augment = SegmentAugment(SegmentAugmentConfig(), DataConfig(), size=128)
    camvid = SegmentBatchMaker(masked, DataConfig(), augment, 0, new_reading(0), 0)
    batch = made(camvid, Request(0, tuple(range(0, 360, 40))))
    assert batch.images.shape == (9, 3, 128, 128)
    assert set(batch.targets.unique().tolist()) <= {IGNORED, *range(11)}
    assert len(batch.targets.unique()) > 6
    assert abs(float(batch.images.mean())) < 1.5
    again = replace(camvid, reading=new_reading(0))
    assert torch.equal(made(again, Request(0, tuple(range(0, 360, 40)))).images, batch.images)
