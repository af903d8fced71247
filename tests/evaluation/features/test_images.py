import os
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.features.crops import (
    CenterCrop,
)
from attmask.evaluation.features.images import CachedCrops, ImageReader, read_in_order
from attmask.evaluation.features.long_side import LongSide
from tests.groups import in_group
from tests.sources import of_files

DATA = DataConfig()


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return write_images(tmp_path, {"ant": 5, "bee": 3, "cat": 9})


def write_images(root: Path, counts: dict[str, int]) -> Source:
    rng = np.random.default_rng(0)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            height, width = rng.integers(30, 60, size=2)
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:02}.png")
    return open_images(root).train


def die(index: int) -> tuple[Tensor]:
    """End the process at the fifth image, as the system does when memory runs out."""
    if index == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return (torch.tensor(index),)


def test_a_killed_reader_is_one_line_that_names_memory() -> None:
    with pytest.raises(UserError) as caught:
        list(read_in_order(die, range(40), batch_size=2, workers=2))
    assert str(caught.value) == (
        "a worker process was ended by signal Killed; the machine most likely ran out of memory: "
        "use fewer workers (2 now)"
    )


def test_chosen_crops_are_those_of_the_chosen_images(source: Source) -> None:
    grey = DataConfig(channels=1)
    chosen = [0, 3, 5, 7, 8, 16]
    everything = CachedCrops(source, CenterCrop(16), grey)
    some = CachedCrops(source, CenterCrop(16), grey, indices=chosen)
    assert some.labels is not None
    assert some.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert some.indices == chosen
    assert torch.equal(some.pixels, everything.pixels[some.indices])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_black_and_marked_in_its_place(source: Source, workers: int) -> None:
    whole = CachedCrops(source, CenterCrop(32), DATA)
    Path(source.place(6)).write_bytes(b"no picture")
    batches = ImageReader(source, CenterCrop(32), DATA).batches(
        range(len(source)), batch_size=5, workers=workers
    )
    pixels, readable, _ = zip(*batches, strict=True)
    assert torch.cat(readable).tolist() == [i != 6 for i in range(17)]
    expected = whole.pixels.clone()
    expected[6] = 0
    assert torch.equal(torch.cat(pixels), expected)


def test_a_target_is_read_beside_its_image_and_told_what_cannot_be_read(source: Source) -> None:
    def target(pixels: np.ndarray | None, index: int) -> Tensor:
        return torch.tensor([index, -1 if pixels is None else pixels.shape[1]])

    Path(source.place(6)).write_bytes(b"no picture")
    reader = ImageReader(source, CenterCrop(32), DATA, target)
    targets = torch.cat(
        [b.targets for b in reader.batches(range(17), batch_size=5) if b.targets is not None]
    )
    assert targets[:, 0].tolist() == list(range(17))
    widths = [-1 if i == 6 else decode(source, i, DATA).shape[1] for i in range(17)]
    assert targets[:, 1].tolist() == widths


def test_an_error_in_a_worker_stays_one_line(source: Source) -> None:
    reader = ImageReader(source, CenterCrop(32), DATA, refuse)
    with pytest.raises(UserError, match="this target cannot be read") as raised:
        list(reader.batches(range(17), batch_size=5, workers=2))
    assert "\n" not in str(raised.value)


def refuse(pixels: np.ndarray | None, index: int) -> Tensor:
    raise UserError("this target cannot be read")


def test_an_empty_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no images"):
        CachedCrops(of_files(tmp_path, ()), CenterCrop(32), DATA)


def test_images_of_which_none_can_be_read_are_refused(source: Source) -> None:
    for index in (0, 3):
        Path(source.place(index)).write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"2 of 17 images of .* cannot be read, .* check that"):
        CachedCrops(source, CenterCrop(32), DATA, indices=[0, 3])


def test_each_process_keeps_its_share_of_the_crops(source: Source, tmp_path: Path) -> None:
    Path(source.place(1)).write_bytes(b"no picture")
    chosen = [0, 1, 2, 5, 9, 16]
    alone = CachedCrops(source, CenterCrop(32), DATA, indices=chosen)

    def member(rank: int) -> tuple[CachedCrops, list[int], list[int]]:
        counted: list[int] = []
        crops = CachedCrops(
            source, CenterCrop(32), DATA, indices=chosen, shared=True, count=counted.append
        )
        one = CachedCrops(source, CenterCrop(32), DATA, indices=[3], shared=True, workers=1)
        batches = [len(batch.pixels) for batch in one.batches(4)]
        return crops, counted, batches

    group = in_group(2, tmp_path / "group", member)
    for crops, counted, _ in group:
        assert crops.indices == alone.indices == [0, 2, 5, 9, 16]
        assert crops.labels is not None
        assert crops.labels.tolist() == [0, 0, 1, 2, 2]
        assert len(crops) == 5
        assert counted == [6], "the other process reads as many at the same time"
    assert [len(crops.pixels) for crops, *_ in group] == [2, 3]
    assert torch.equal(torch.cat([crops.pixels for crops, *_ in group]), alone.pixels)
    assert [batches for *_, batches in group] == [[], [1]]


def test_crops_of_different_sizes_are_not_kept_in_one_tensor(source: Source) -> None:
    with pytest.raises(ValueError, match="different sizes"):
        CachedCrops(source, LongSide(32), DATA)


def test_crops_of_different_sizes_come_one_by_one(source: Source) -> None:
    batches = [*ImageReader(source, LongSide(64), DATA).batches(range(5), batch_size=4)]
    assert [len(batch.pixels) for batch in batches] == [1] * 5
    assert len({batch.pixels.shape for batch in batches}) > 1
