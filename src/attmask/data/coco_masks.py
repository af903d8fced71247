"""Masks of objects in COCO's codes: polygons, run lengths and boxes become pixels and back."""

from collections.abc import Sequence
from typing import Any, TypeAlias, TypedDict

import numpy as np
from jaxtyping import Bool, Int64, UInt8

from attmask.errors import UserError

INSTALL = "pip install 'attmask[dense]'"


class Rle(TypedDict):
    """COCO's compressed run lengths of one mask, column by column."""

    size: list[int]
    """Height and width."""
    counts: bytes


Polygons: TypeAlias = list[list[float]]
"""The outlines of the parts of an object, each as x1 y1 x2 y2 ..."""

Segmentation: TypeAlias = Polygons | bytes | Int64[np.ndarray, " runs"] | None
"""Polygons, compressed run lengths, plain run lengths, or nothing but a box."""


def mask_library() -> Any:
    """The module that draws and codes masks, which is an extra."""
    try:
        from faster_coco_eval.core import mask
    except ImportError as fault:
        raise UserError(f"masks of objects need faster-coco-eval; run `{INSTALL}`") from fault
    return mask


def rle_of(segmentation: Segmentation, box: Sequence[float], size_wh: tuple[int, int]) -> Rle:
    """The mask of one object; that of an object without segmentation is its filled box x1 y1 x2 y2.

    Raises a ValueError for run lengths that do not fit the size.
    """
    library, (width, height) = mask_library(), size_wh
    if segmentation is None:
        x1, y1, x2, y2 = box
        segmentation = [[x1, y1, x2, y1, x2, y2, x1, y2]]
    found: Rle
    if isinstance(segmentation, list):
        found = library.merge(library.frPyObjects(segmentation, height, width))
    elif isinstance(segmentation, np.ndarray):
        runs = {"size": [height, width], "counts": segmentation.tolist()}
        found = library.frPyObjects(runs, height, width)
    else:
        found = {"size": [height, width], "counts": segmentation}
        library.decode(found)  # refuses what does not fit the size
    return found


def encode(masks: Bool[np.ndarray, "n H W"] | UInt8[np.ndarray, "n H W"]) -> list[Rle]:
    """The run lengths of masks."""
    if not len(masks):
        return []
    coded: list[Rle] = mask_library().encode(
        np.asfortranarray(masks.transpose(1, 2, 0), dtype=np.uint8)
    )
    return coded


def decode(rles: Sequence[Rle], size_wh: tuple[int, int]) -> UInt8[np.ndarray, "n H W"]:
    """The masks of run lengths, of 0 and 1."""
    if not rles:
        return np.zeros((0, size_wh[1], size_wh[0]), dtype=np.uint8)
    return np.ascontiguousarray(mask_library().decode(list(rles)).transpose(2, 0, 1))


def areas(rles: Sequence[Rle]) -> Int64[np.ndarray, " n"]:
    """The number of pixels of each mask."""
    if not rles:
        return np.zeros(0, dtype=np.int64)
    return np.asarray(mask_library().area(list(rles)), dtype=np.int64)
