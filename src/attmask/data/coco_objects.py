"""The objects of an annotation file in COCO's format, each checked and kept compactly."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64, Int32, Int64

from attmask.data.coco_masks import Segmentation
from attmask.errors import UserError

REPAIR = "correct it, or export the file again"
_CORNERS = 3
_HUNDREDTHS = 100.0
_LARGEST = 1e12  # no picture has as many pixels; this refuses infinity and NaN as well
_NO_POLYGON = "has a polygon that is not a list of x and y in turn"


@dataclass(frozen=True, eq=False)
class Segmentations:
    """The outlines and run lengths of many objects.

    COCO's coordinates have two decimals: as integers of hundredths they are exact in half of the
    memory. Others stay float64, because outlines are drawn from exact numbers.
    """

    coordinates: Float64[np.ndarray, " m"] | Int32[np.ndarray, " m"]
    polygons: Int64[np.ndarray, " p"]
    """Where each polygon begins in `coordinates`, and the end of the last."""
    objects: Int64[np.ndarray, " a"]
    """Where each object begins in `polygons`, and the end of the last."""
    runs: Mapping[int, bytes | Int64[np.ndarray, " _"]]
    """The run lengths of the objects that have no polygons."""

    def __getitem__(self, row: int) -> Segmentation:
        if row in self.runs:
            return self.runs[row]
        first, last = self.objects[row], self.objects[row + 1]
        if first == last:
            return None
        scale = 1.0 if self.coordinates.dtype == np.float64 else _HUNDREDTHS
        bounds = self.polygons[first : last + 1].tolist()
        return [(self.coordinates[a:b] / scale).tolist() for a, b in pairwise(bounds)]


class Objects:
    """Collects the objects of a file, annotation after annotation."""

    def __init__(
        self,
        file: Path,
        images: Mapping[int, int],
        sizes_wh: Int64[np.ndarray, "images 2"],
        category_ids: Sequence[int],
    ) -> None:
        self._file, self._places = file, images
        self._sizes: list[list[int]] = sizes_wh.tolist()
        self._numbers = {category: number for number, category in enumerate(category_ids)}
        self.ids, self.images, self.labels = array("q"), array("q"), array("q")
        self.boxes, self.areas, self.crowds = array("d"), array("d"), array("b")
        self._coordinates = array("d")
        self._polygons, self._objects = array("q", [0]), array("q", [0])
        self._runs: dict[int, bytes | np.ndarray] = {}
        self.without_mask = 0

    def add(self, annotation: Any, place: int) -> None:
        """Check one annotation and keep what is needed of it."""
        known = annotation if isinstance(annotation, dict) else {}
        number = known.get("id", place)
        if type(number) is not int or abs(number) >= 1 << 63:
            raise self._wrong(place, f"has the id {number!r}, wanted a whole number")
        image, category = known.get("image_id"), known.get("category_id")
        if type(image) is not int or image not in self._places:
            raise self._wrong(number, f"has the image id {image!r}, which no image has")
        if type(category) is not int or category not in self._numbers:
            raise self._wrong(number, f"has the category id {category!r}, which no category has")
        if not _numbers(known.get("bbox"), 4):
            raise self._wrong(number, f"has the bbox {known.get('bbox')!r}, wanted x, y, w and h")
        area = known.get("area")
        if area is not None and not _numbers([area], 1):
            raise self._wrong(number, f"has the area {area!r}, wanted a number")
        if (crowd := known.get("iscrowd") or 0) not in (0, 1):
            raise self._wrong(number, f"has iscrowd {crowd!r}, wanted 0 or 1")
        self._segment(known.get("segmentation"), self._sizes[self._places[image]], number)
        self.ids.append(number)
        self.images.append(self._places[image])
        self.labels.append(self._numbers[category])
        self.boxes.extend(known["bbox"])
        self.areas.append(np.nan if area is None else area)
        self.crowds.append(int(crowd))

    def _segment(self, given: Any, size_wh: Sequence[int], number: int) -> None:
        """Keep the polygons or the run lengths of one object."""
        if isinstance(given, dict):
            self._runs[len(self.ids)] = self._run_lengths(given, size_wh, number)
        elif isinstance(given, list):
            for polygon in given:
                self._outline(polygon, number)
        elif given is not None:
            raise self._wrong(number, "has a segmentation that is neither polygons nor run lengths")
        self._objects.append(len(self._polygons) - 1)
        self.without_mask += len(self.ids) not in self._runs and (
            self._objects[-1] == self._objects[-2]
        )

    def _outline(self, polygon: Any, number: int) -> None:
        if not isinstance(polygon, list) or len(polygon) % 2:
            raise self._wrong(number, _NO_POLYGON)
        if len(polygon) < 2 * _CORNERS:
            return  # two points have no area
        try:
            self._coordinates.extend(polygon)
        except (TypeError, OverflowError) as fault:
            raise self._wrong(number, _NO_POLYGON) from fault
        self._polygons.append(len(self._coordinates))

    def _run_lengths(
        self, given: Mapping[str, Any], size_wh: Sequence[int], number: int
    ) -> bytes | Int64[np.ndarray, " runs"]:
        width, height = size_wh
        if given.get("size") != [height, width]:
            size = given.get("size")
            raise self._wrong(
                number, f"has run lengths of the size {size!r}, its image has [{height}, {width}]"
            )
        counts = given.get("counts")
        if isinstance(counts, str) and counts.isascii():
            return counts.encode()
        if not isinstance(counts, list) or any(type(c) is not int or c < 0 for c in counts):
            raise self._wrong(number, "has counts that are neither whole numbers nor a string")
        if sum(counts) != width * height:
            raise self._wrong(
                number,
                f"has counts of {sum(counts)} pixels, its image has {width * height}",
            )
        return np.array(counts, dtype=np.int64)

    def _wrong(self, number: int, what: str) -> UserError:
        return UserError(f"annotation {number} of {self._file} {what}; {REPAIR}")

    def segmentations(self) -> Segmentations:
        """All of them."""
        exact = np.array(self._coordinates, dtype=np.float64)
        if len(wrong := np.flatnonzero(~(np.abs(exact) < _LARGEST))):
            polygon = np.searchsorted(self._polygons, wrong[0], side="right") - 1
            row = int(np.searchsorted(self._objects, polygon, side="right")) - 1
            raise self._wrong(self.ids[row], _NO_POLYGON)
        hundredths = np.rint(exact * _HUNDREDTHS)
        fits = np.abs(hundredths).max(initial=0) < np.iinfo(np.int32).max
        small = fits and np.array_equal(hundredths / _HUNDREDTHS, exact)
        return Segmentations(
            hundredths.astype(np.int32) if small else exact,
            np.array(self._polygons, dtype=np.int64),
            np.array(self._objects, dtype=np.int64),
            self._runs,
        )


def _numbers(given: Any, count: int) -> bool:
    """Whether this is a list of so many finite numbers."""
    if not isinstance(given, list) or len(given) != count:
        return False
    return all(type(n) in (int, float) and -_LARGEST < n < _LARGEST for n in given)
