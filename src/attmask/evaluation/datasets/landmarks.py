"""Revisited Oxford and Paris, from their official ground truth."""

import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.datasets.listed import files_source, folder_with, require_images
from attmask.evaluation.features.long_side import RegionBox
from attmask.evaluation.metrics.ranking import Truth
from attmask.settings import Config, setting


@dataclass(frozen=True, eq=False)
class LandmarkSet:
    """Queries, the box and the truth of each, and the database that `truths` count in.

    The label of an image is its own number, so that it is known by it when others are left out.
    """

    queries: Source
    database: Source
    boxes: tuple[RegionBox, ...]
    truths: tuple[Truth, ...]

    @property
    def sources(self) -> Mapping[str, Source]:
        """Both."""
        return {"queries": self.queries, "database": self.database}


class Landmarks(Config):
    """Revisited Oxford (4,993 images, 70 queries) or Paris (6,322 images, 70 queries)."""

    layout: ClassVar[str] = (
        "gnd_roxford5k.pkl and jpg/*.jpg (or gnd_rparis6k.pkl), also in a folder roxford5k/"
    )

    name: Literal["roxford5k", "rparis6k"] = setting("roxford5k", "which of the two", paper="both")

    def open(self, path: Path) -> LandmarkSet:
        """The ground truth and all of its pictures, or what is missing."""
        file = f"gnd_{self.name}.pkl"
        wanted = f"{file} and jpg/*.jpg, there or in a folder {self.name}/"
        folder = folder_with(path, file, [self.name], wanted)
        truth = read_truth(folder / file)
        pictures = folder / "jpg"
        queries, database = (
            [f"{name}.jpg" for name in names] for names in (truth.queries, truth.database)
        )
        parts = {"database pictures": database, "query pictures": queries}
        require_images(pictures, parts, wanted)
        return LandmarkSet(
            files_source(pictures, queries, queries, queries),
            files_source(pictures, database, database, database),
            truth.boxes,
            truth.truths,
        )


@dataclass(frozen=True)
class GroundTruth:
    """What the official file says: names of pictures, boxes and right answers of the queries."""

    queries: tuple[str, ...]
    database: tuple[str, ...]
    boxes: tuple[RegionBox, ...]
    truths: tuple[Truth, ...]


class _PlainUnpickler(pickle.Unpickler):
    """Numbers, texts, lists and dicts only: a pickle that names anything else could run it."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it wants to load {module}.{name}")


def read_truth(file: Path) -> GroundTruth:
    """Read a ground truth file, without running anything that it may contain."""
    advice = "get the official file again"
    try:
        with file.open("rb") as opened:
            found = _PlainUnpickler(opened).load()
    except Exception as fault:  # bytes that are no pickle can make it raise nearly anything
        raise UserError(f"{file} cannot be read as plain data: {fault}; {advice}") from fault
    try:
        truth = _parsed(found)
    except (KeyError, TypeError, ValueError) as fault:
        raise UserError(
            f"{file} is not a ground truth with imlist, qimlist and gnd ({fault}); {advice}"
        ) from fault
    return truth


def _parsed(found: Any) -> GroundTruth:
    queries, database = (_names(found, key) for key in ("qimlist", "imlist"))
    rows = found["gnd"]
    if len(rows) != len(queries):
        raise ValueError(f"{len(rows)} rows for {len(queries)} queries")
    truths = tuple(
        Truth(*(_numbers(row[key], len(database)) for key in ("easy", "hard", "junk")))
        for row in rows
    )
    return GroundTruth(queries, database, tuple(_box(row["bbx"]) for row in rows), truths)


def _names(found: Any, key: str) -> tuple[str, ...]:
    names = tuple(found[key])
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{key} has no names")
    if len(set(names)) < len(names):
        raise ValueError(f"{key} names a picture twice")
    return names


def _numbers(values: Any, images: int) -> tuple[int, ...]:
    numbers = tuple(int(value) for value in values)
    if any(not 0 <= number < images for number in numbers):
        raise ValueError(f"an image beyond the {images} of the database")
    return numbers


def _box(values: Any) -> RegionBox:
    left, top, right, bottom = (float(value) for value in values)
    if not (-math.inf < left < right < math.inf and -math.inf < top < bottom < math.inf):
        raise ValueError(f"an impossible box {left, top, right, bottom}")
    return left, top, right, bottom
