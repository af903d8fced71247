"""The input of a network as an image processor of transformers describes it."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from attmask.errors import UserError


class Preprocessing(NamedTuple):
    """Image size, mean and std; None where nothing is stated."""

    image_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def preprocessing(path: Path, stated: Mapping[str, Any], *, channels: int) -> Preprocessing:
    """What preprocessor_config.json says: the crop, or the size where nothing is cropped."""
    if not stated:
        return Preprocessing()
    side = None
    if stated.get("do_center_crop", "crop_size" in stated):
        side = _side(stated.get("crop_size"))
    if side is None:
        side = _side(stated.get("size"))
    if stated.get("do_normalize", True) is False:
        return Preprocessing(side, (0.0,) * channels, (1.0,) * channels)
    return Preprocessing(side, _numbers(path, stated, "mean"), _numbers(path, stated, "std"))


def _side(stated: object) -> int | None:
    """The side of a square: a number, or an entry of transformers' dictionaries of sizes."""
    if isinstance(stated, Mapping):
        height = stated.get("height", stated.get("shortest_edge"))
        return _side(height) if stated.get("width", height) == height else None
    is_number = isinstance(stated, int) and not isinstance(stated, bool)
    return stated if is_number and isinstance(stated, int) and 0 < stated < 2**15 else None


def _numbers(path: Path, stated: Mapping[str, Any], what: str) -> tuple[float, ...] | None:
    values = stated.get(f"image_{what}")
    if values is None:
        return None
    is_list = isinstance(values, list) and bool(values)
    if not is_list or not all(isinstance(v, int | float) and math.isfinite(v) for v in values):
        raise UserError(f"{path} says image_{what}={str(values)[:40]}; wanted a list of numbers")
    return tuple(map(float, values))
