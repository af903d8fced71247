"""Annotated images: the split that is measured, and how many of its images."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.annotated import Split, WithBoxes, WithSegments
from tests.data.coco_files import SIZE_WH, an_image, an_object, write_coco
from tests.evaluation.coloured import NAMES, write_coloured


def boxed(root: Path, **splits: int) -> Path:
    for split, count in splits.items():
        write_coco(
            root / "annotations" / f"instances_{split}.json",
            [an_object(number + 1, number) for number in range(count)],
            [an_image(number) for number in range(count)],
            pictures=root / split,
        )
    return root


@pytest.mark.parametrize(
    ("splits", "asked", "chosen"),
    [
        ({"train": 3, "val": 2}, "auto", {"val": 2}),
        ({"train": 3}, "auto", {"train": 3}),
        ({"train": 3, "val": 2}, "train", {"train": 3}),
        ({"train": 3, "val": 2, "test": 1}, "auto", {"val": 2}),
        ({"train": 3, "val": 2, "test": 1}, "test", {"test": 1}),
    ],
)
def test_the_held_out_images_are_measured_unless_another_split_is_asked_for(
    tmp_path: Path, splits: dict[str, Any], asked: Split, chosen: dict[str, int]
) -> None:
    masked = WithSegments(split=asked).open(write_coloured(tmp_path / "masked", **splits))
    assert {name: len(source) for name, source in masked.sources.items()} == chosen
    assert masked.images.classes.names == NAMES
    objects = WithBoxes(split=asked).open(boxed(tmp_path / "boxed", **splits))
    assert {name: len(source) for name, source in objects.sources.items()} == chosen


def test_limits_spread_the_images_evenly_with_their_annotations(tmp_path: Path) -> None:
    write_coloured(tmp_path / "masked", train=1, val=6)
    every = WithSegments().open(tmp_path / "masked").images
    some = WithSegments(max_images=3).open(tmp_path / "masked").images
    names = [every.source.name(index) for index in range(6)]
    kept = [names.index(some.source.name(index)) for index in range(3)]
    assert kept[0] < 2 <= kept[1] < 4 <= kept[2]
    assert some.files == tuple(every.files[index] for index in kept)
    boxes = WithBoxes(max_images=2).open(boxed(tmp_path / "boxed", train=1, val=6)).images
    ids = boxes.image_ids
    assert len(boxes) == len(ids) == 2
    assert [boxes.annotated(index, SIZE_WH).ids.tolist() for index in range(2)] == [
        [number + 1] for number in ids
    ]
    assert np.diff(ids) > 1


def test_a_split_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no split test in .*, only train, val; choose one of"):
        WithSegments(split="test").open(write_coloured(tmp_path / "masked", train=2, val=1))
    with pytest.raises(UserError, match=r"no split val in .*, only train; choose one of these"):
        WithBoxes(split="val").open(boxed(tmp_path / "boxed", train=2))
