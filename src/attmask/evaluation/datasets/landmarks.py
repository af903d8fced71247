"""Revisited Oxford and Paris with their official ground truth."""

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
    """Queries with their boxes and ground truth, and the database that `truths` refers to.

    The label of an image is its index, which identifies it if unreadable images are left out.
    """

    queries: Source
    database: Source
    boxes: tuple[RegionBox, ...]
    truths: tuple[Truth, ...]

    @property
    def sources(self) -> Mapping[str, Source]:
        """Queries and database."""
        return {"queries": self.queries, "database": self.database}


class Landmarks(Config):
    """Revisited Oxford (4,993 images, 70 queries) or Paris (6,322 images, 70 queries)."""

    layout: ClassVar[str] = (
        "gnd_roxford5k.pkl (or gnd_rparis6k.pkl) and jpg/*.jpg, directly or in a folder roxford5k/"
    )

    name: Literal["roxford5k", "rparis6k"] = setting("roxford5k", "data set", paper="both")

    def open(self, path: Path) -> LandmarkSet:
        """Open the ground truth and its images, all of which must exist."""
        file = f"gnd_{self.name}.pkl"
        wanted = f"{file} and jpg/*.jpg, directly or in a folder {self.name}/"
        folder = folder_with(path, file, [self.name], wanted)
        truth = read_truth(folder / file)
        images = folder / "jpg"
        queries, database = (
            [f"{name}.jpg" for name in names] for names in (truth.queries, truth.database)
        )
        parts = {"database images": database, "query images": queries}
        require_images(images, parts, wanted)
        return LandmarkSet(
            files_source(images, queries, queries, queries),
            files_source(images, database, database, database),
            truth.boxes,
            truth.truths,
        )


@dataclass(frozen=True)
class GroundTruth:
    """The contents of the official file: image names, boxes and ground truth of the queries."""

    queries: tuple[str, ...]
    database: tuple[str, ...]
    boxes: tuple[RegionBox, ...]
    truths: tuple[Truth, ...]


class _PlainUnpickler(pickle.Unpickler):
    """Loads only numbers, strings, lists and dicts; a pickle of anything else could run code."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it would load {module}.{name}")


def read_truth(file: Path) -> GroundTruth:
    """Read a ground truth file without running code from it."""
    advice = "download the official file again"
    try:
        with file.open("rb") as opened:
            found = _PlainUnpickler(opened).load()
    except Exception as fault:  # pickle raises many kinds of errors for damaged files
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
        raise ValueError(f"{key} names an image twice")
    return names


def _numbers(values: Any, images: int) -> tuple[int, ...]:
    numbers = tuple(int(value) for value in values)
    if any(not 0 <= number < images for number in numbers):
        raise ValueError(f"an index is beyond the {images} images of the database")
    return numbers


def _box(values: Any) -> RegionBox:
    left, top, right, bottom = (float(value) for value in values)
    if not (-math.inf < left < right < math.inf and -math.inf < top < bottom < math.inf):
        raise ValueError(f"the box {left, top, right, bottom} is not valid")
    return left, top, right, bottom
