"""The pass over the files: each picture once, in order, with any number of workers."""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from attmask.audit.facts import PictureFacts
from attmask.audit.survey import survey
from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.source import Raw, everything
from attmask.errors import UserError


@dataclass(frozen=True)
class Numbered:
    """Pictures of one value each; reading the deadly one kills the process."""

    count: int
    deadly: int = -1

    def __len__(self) -> int:
        return self.count

    def name(self, row: int) -> str:
        return f"picture {row}"

    def read(self, row: int) -> Raw:
        if row == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return np.full((8, 8), row % 256, dtype=np.uint8)

    @property
    def shards(self) -> Sequence[int]:
        return ()


def images(train: int, val: int = 0, test: int = 0, deadly: int = -1) -> Images:
    held_out = {"val": val, "test": test}
    splits = {"train": everything(Path("train"), Numbered(train, deadly))}
    return Images.of(
        splits | {name: everything(Path(name), Numbered(n)) for name, n in held_out.items() if n}
    )


def without_speed(facts: list[PictureFacts]) -> list[object]:
    return [(f.place, f.digest, f.fault, f.looks and f.looks.mean) for f in facts]


def test_any_number_of_workers_finds_the_same_in_file_order() -> None:
    one, two = (
        survey(images(100, 30, 20), DataConfig(), max_images=1000, workers=workers)
        for workers in (0, 2)
    )
    assert without_speed(one.all) == without_speed(two.all)
    for split, count in (("train", 100), ("val", 30), ("test", 20)):
        assert [f.place for f in one.splits[split]] == [
            f"{split}/picture {i}" for i in range(count)
        ]


@example(60, 1, 1, 1)
@settings(max_examples=20)
@given(st.integers(1, 60), st.integers(0, 20), st.integers(0, 20), st.integers(1, 120))
def test_no_more_are_examined_than_asked_for_but_some_of_each_split(
    train: int, val: int, test: int, most: int
) -> None:
    there = images(train, val, test)
    found = survey(there, DataConfig(), max_images=most, workers=0)
    assert len(found.all) <= most + len(there.splits) - 1
    assert found.splits.keys() == there.splits.keys()
    assert all(found.splits.values())
    if most >= train + val + test:
        counts = {name: len(facts) for name, facts in found.splits.items()}
        assert counts == {name: len(source) for name, source in there.splits.items()}


def test_decoding_is_timed_on_some_of_many() -> None:
    found = survey(images(300), DataConfig(), max_images=1000, workers=0)
    timed = [facts for facts in found.train if facts.looks and facts.looks.speed]
    assert len(timed) == 64


def test_a_worker_that_dies_of_a_picture_is_a_line_that_says_where() -> None:
    with pytest.raises(UserError, match=r"died at train/picture \d+ or one of the next ones"):
        survey(images(200, deadly=40), DataConfig(), max_images=1000, workers=1)


def test_less_than_one_picture_is_refused() -> None:
    with pytest.raises(UserError, match="max_images is 0; it must be at least 1"):
        survey(images(3), DataConfig(), max_images=0)
