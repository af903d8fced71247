"""Processes that call a network together: as many calls on each, one decision for all."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from attmask import distributed
from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.features.forward import collect
from attmask.evaluation.features.images import Crops
from attmask.evaluation.features.lockstep import Lockstep
from attmask.evaluation.features.readout import CLS
from attmask.interrupt import StopRequestedError
from tests.evaluation.models import tiny_backbone
from tests.groups import in_group

BLANK = Crops(torch.zeros(1, 3, 32, 32, dtype=torch.uint8), torch.tensor([False]))
PIXELS = torch.randint(0, 256, (6, 3, 32, 32), generator=torch.Generator().manual_seed(0)).byte()


class Asked:
    """Requests a stop at one of the times it is asked."""

    def __init__(self, stop_at: int = 0) -> None:
        self.times, self.stop_at = 0, stop_at

    def __call__(self) -> bool:
        self.times += 1
        return self.times == self.stop_at


def read(crops: Iterator[Crops], asked: Asked, counted: list[int]) -> torch.Tensor:
    network = Lockstep(tiny_backbone(), DataConfig(), nullcontext, counted.append, asked)
    return collect(network.forward(crops, CLS, BLANK))


def batches(images: int, *, fails: bool = False) -> Iterator[Crops]:
    """The last images, two at a time; at the end may come an error."""
    for pixels in PIXELS[len(PIXELS) - images :].split(2) if images else ():
        yield Crops(pixels, torch.ones(len(pixels), dtype=torch.bool))
    if fails:
        raise UserError("this file is broken")


def test_one_process_reads_its_batches_and_stops_between_two() -> None:
    counted: list[int] = []
    values = read(batches(5), Asked(), counted)
    assert values.shape == (5, 24)
    assert counted == [2, 2, 1]
    counted.clear()
    with pytest.raises(StopRequestedError):
        read(batches(5), Asked(stop_at=3), counted)
    assert counted == [2, 2]
    with pytest.raises(UserError, match="this file is broken"):
        read(batches(5, fails=True), Asked(), [])


def test_a_process_without_images_takes_part_until_all_are_done(tmp_path: Path) -> None:
    def member(rank: int) -> tuple[torch.Tensor, int, list[int]]:
        asked, counted = Asked(), list[int]()
        values = read(batches((5, 0)[rank]), asked, counted)
        return distributed.gather_rows(values), asked.times, counted

    for values, asked, counted in in_group(2, tmp_path, member):
        torch.testing.assert_close(values, read(batches(5), Asked(), []))
        assert asked == 4, "before three batches, and at the end"
        assert counted == [2, 2, 1], "images of both"


def test_a_stop_or_an_error_of_one_process_ends_all_before_the_same_batch(tmp_path: Path) -> None:
    def member(rank: int) -> list[tuple[str, list[int]]]:
        seen = []
        for images, stop_at, fails in ((6, 2, False), (4, 0, True), (0, 0, True)):
            counted: list[int] = []
            mine = (
                (batches(6), Asked())
                if rank == 0
                else (batches(images, fails=fails), Asked(stop_at))
            )
            with pytest.raises((StopRequestedError, UserError)) as caught:
                read(*mine, counted)
            seen.append((repr(caught.value), counted))
        return seen

    broken = "SharedError('process 1 of 2: this file is broken')"
    expected = [("StopRequestedError()", [4]), (broken, [4, 4]), (broken, [])]
    assert in_group(2, tmp_path, member) == [expected] * 2
