"""Oxford Flowers-102 in its official files: `jpg/`, `imagelabels.mat` and `setid.mat`."""

import math
import time
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from attmask.data.stores.columns import narrowest
from attmask.data.stores.index import Index, Part, Stamp
from attmask.data.stores.names import NamesBuilder
from attmask.data.stores.splits import TEST, TRAIN, VAL
from attmask.errors import UserError
from attmask.reading import MOST_BYTES, check_regular

PICTURES, LABELS, SPLITS = "jpg", "imagelabels.mat", "setid.mat"
_LABELS_IN_FILE = "labels"
_IDS_IN_FILE = {TRAIN: "trnid", VAL: "valid", TEST: "tstid"}
_MOST_NUMBERS = 1 << 20
_AGAIN = "download it again"


def is_flowers(folder: Path) -> bool:
    """Whether a folder has one of the two official lists."""
    return (folder / LABELS).is_file() or (folder / SPLITS).is_file()


def scan_flowers(folder: Path) -> Index:
    """The images of the three official splits; classes are called 1 to 102."""
    began_ns = time.time_ns()
    for name in (PICTURES, LABELS, SPLITS):
        if not (folder / name).exists():
            raise UserError(
                f"{folder} has no {name}; Flowers-102 consists of {PICTURES}/, {LABELS} and "
                f"{SPLITS}: download what is missing"
            )
    watched = {name: Stamp.of(folder / name) for name in ("", PICTURES, LABELS, SPLITS)}
    numbers = _numbers(folder / LABELS, [_LABELS_IN_FILE])[_LABELS_IN_FILE]
    ids = _numbers(folder / SPLITS, list(_IDS_IN_FILE.values()))
    there = {file.name for file in (folder / PICTURES).iterdir()}
    classes, labels = np.unique(numbers, return_inverse=True)
    parts = {}
    for split, key in _IDS_IN_FILE.items():
        chosen = ids[key]
        if chosen.min() < 1 or chosen.max() > len(numbers):
            raise UserError(
                f"{folder / SPLITS} has the images {chosen.min()} to {chosen.max()} in {key}, but "
                f"{LABELS} has {len(numbers)} labels; download both again"
            )
        names = [f"image_{number:05d}.jpg" for number in chosen.tolist()]
        if missing := [name for name in names if name not in there]:
            more = f" and {len(missing) - 1} more of {key}" if len(missing) > 1 else ""
            raise UserError(f"{folder / PICTURES} has no {missing[0]}{more}; unpack it again")
        builder = NamesBuilder()
        for name in names:
            builder.add(name.encode())
        parts[split] = Part(
            PICTURES,
            builder.build(),
            labels.reshape(-1)[chosen - 1].astype(narrowest(len(classes))),
            tuple(map(str, classes.tolist())),
        )
    return Index("files", folder, parts, watched, began_ns)


def _numbers(file: Path, keys: list[str]) -> dict[str, Int64[np.ndarray, " n"]]:
    """Some arrays of whole numbers in a MATLAB file, each in one row."""
    from scipy.io import loadmat, whosmat

    check_regular(file)
    if file.stat().st_size > MOST_BYTES:
        raise UserError(f"{file} has {file.stat().st_size:,} bytes, too many for a list; {_AGAIN}")
    try:
        shapes = {name: shape for name, shape, _ in whosmat(file)}
        if any(math.prod(shapes.get(key, ())) > _MOST_NUMBERS for key in keys):
            raise ValueError("it declares too many numbers")
        held: dict[str, Any] = loadmat(file, variable_names=keys)
    except OSError:
        raise
    except Exception as fault:  # a damaged file can raise anything
        raise UserError(f"{file} is damaged or not a MATLAB file; {_AGAIN}") from fault
    found = {}
    for key in keys:
        if key not in held:
            raise UserError(f"{file} has no {key}; wanted {', '.join(keys)}: {_AGAIN}")
        values = np.asarray(held[key]).reshape(-1)
        whole = values.size and values.dtype.kind in "iuf" and np.isfinite(values).all()
        if not whole or not np.array_equal(values, np.round(values)) or np.abs(values).max() > 1e9:
            raise UserError(f"{key} of {file} is not a list of whole numbers; {_AGAIN}")
        found[key] = values.astype(np.int64)
    return found
