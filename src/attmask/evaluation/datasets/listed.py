"""Images named by official list files, with errors for missing files."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from attmask.data.source import Source
from attmask.data.stores.files import Files
from attmask.data.stores.names import pack
from attmask.errors import UserError


def folder_with(path: Path, file: str, below: Sequence[str], layout: str) -> Path:
    """The folder that contains `file`: the path itself or one of its sub-folders `below`."""
    for folder in (path, *(path / name for name in below)):
        if (folder / file).is_file():
            return folder
    raise UserError(f"{file} is missing in {path}; wanted {layout}")


def require_images(root: Path, parts: Mapping[str, Sequence[str]], layout: str) -> None:
    """Raise an error with the number of missing images of each part, if any are missing."""
    told, first = [], None
    for part, names in parts.items():
        if missing := [name for name in names if not (root / name).is_file()]:
            told.append(f"{len(missing):,} of {len(names):,} {part}")
            first = first or missing[0]
    if first is not None:
        raise UserError(
            f"{' and '.join(told)} are missing in {root}, the first is {first}; wanted {layout}"
        )


def files_source(
    root: Path, names: Sequence[str], labels: Sequence[str], classes: Sequence[str]
) -> Source:
    """A source of files in the given order, with labels by the names of their classes."""
    number = {name: label for label, name in enumerate(classes)}
    return Source(
        root,
        Files(root, pack(names)),
        np.arange(len(names), dtype=np.int64),
        np.array([number[label] for label in labels], dtype=np.int64),
        tuple(classes),
    )


def table(file: Path, columns: int, skip: int = 0) -> Iterator[list[str]]:
    """Yield the lines of a list file, split at spaces; each must have `columns` columns."""
    try:
        with file.open(encoding="utf-8") as opened:
            for number, line in enumerate(opened, start=1):
                cells = line.split()
                if number <= skip or not cells:
                    continue
                if len(cells) != columns:
                    raise UserError(
                        f"line {number} of {file} has {len(cells)} columns, wanted {columns}; "
                        "download the official file again"
                    )
                yield cells
    except (OSError, UnicodeDecodeError) as fault:
        raise UserError(f"cannot read {file}: {fault}; download the official file again") from fault
