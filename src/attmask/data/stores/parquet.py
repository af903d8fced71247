"""Pictures in parquet files, as Hugging Face keeps them: a column of encoded pictures.

Read by pyarrow, one row group at a time; `datasets` would first write all of it once more into
its cache.
"""

import json
import logging
import os
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.stores.folder import PARQUET, Walk, names_ending
from attmask.data.stores.labels import Labelled, label_texts, match_classes
from attmask.data.stores.splits import by_prefix, splits_among, with_train
from attmask.errors import UserError

log = logging.getLogger(__name__)

LABEL_COLUMNS = ("label", "labels", "class", "target")
_PICTURE_COLUMNS = ("image", "img", "picture", "jpg", "png", "bytes")
_GROUPS_KEPT = 4
_MANY_ROWS = 1000  # the groups of Hugging Face's own picture datasets have 100


def open_parquet(file: Path) -> Any:
    """A `pyarrow.parquet.ParquetFile`: its schema is read, its rows not yet."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as missing:
        raise UserError(
            f"{file} needs pyarrow to be read; run: pip install 'attmask[parquet]'"
        ) from missing
    try:
        return pq.ParquetFile(file, memory_map=True)
    except pa.ArrowInvalid as fault:
        raise UserError(f"{file} is not a parquet file ({fault}); make it again") from fault


def picture_column(schema: Any) -> str | None:
    """The column of encoded pictures: a struct with `bytes`, or bytes of a telling name."""
    from pyarrow import types

    for one in schema:
        if types.is_struct(one.type) and one.type.get_field_index("bytes") >= 0:
            return str(one.name)
    for name in _PICTURE_COLUMNS:
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and (types.is_binary(kind) or types.is_large_binary(kind)):
            return name
    return None


class Rows:
    """A store of pictures in the rows of parquet files below `root`, called `file[row]`."""

    def __init__(self, root: Path, files: Sequence[str], column: str) -> None:
        self.root, self.files, self.column = root, files, column
        file_begins, group_begins, self._group_of = [0], [0], list[tuple[int, int]]()
        for number, name in enumerate(files):
            opened = open_parquet(root / name)
            if column not in opened.schema_arrow.names:
                raise UserError(
                    f"{root / name} has no column {column}, {files[0]} has one; "
                    f"give all files the same columns"
                )
            about = opened.metadata
            for group in range(about.num_row_groups):
                self._group_of.append((number, group))
                group_begins.append(group_begins[-1] + about.row_group(group).num_rows)
            file_begins.append(group_begins[-1])
        self._file_begins, self._group_begins = tuple(file_begins), tuple(group_begins)
        self._forget()
        largest = int(np.diff(self._group_begins).max(initial=0))
        if largest > _MANY_ROWS:
            log.warning(
                "%s has row groups of %d pictures, and a whole one is read for each picture: "
                "slow; write it with smaller ones, or with save_to_disk of `datasets`",
                root,
                largest,
            )

    def _forget(self) -> None:
        self._process = os.getpid()
        self._groups: OrderedDict[int, Any] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_groups": OrderedDict(), "_process": -1}

    def paths(self, rows: Int64[np.ndarray, " m"] | range) -> Iterable[Path]:
        """All files of the store, whichever pictures are asked for."""
        return [self.root / name for name in self.files]

    def __len__(self) -> int:
        return self._group_begins[-1]

    def name(self, row: int) -> str:
        """The file and the row in it."""
        file = bisect_right(self._file_begins, row) - 1
        return f"{self.files[file]}[{row - self._file_begins[file]}]"

    def read(self, row: int) -> bytes:
        """The encoded picture, or the file it points to."""
        number = bisect_right(self._group_begins, row) - 1
        found = self._group(number)[row - self._group_begins[number]].as_py()
        file = self.root / self.files[self._group_of[number][0]]
        return picture_bytes(found, file.parent)

    @property
    def shards(self) -> Sequence[int]:
        """The row where each row group begins."""
        return self._group_begins[:-1]

    def _group(self, number: int) -> Any:
        """The pictures of a row group; the last few are kept."""
        if self._process != os.getpid():  # open files are not shared with a forked process
            self._forget()
        group = self._groups.pop(number, None)
        if group is None:
            file, inner = self._group_of[number]
            table = open_parquet(self.root / self.files[file])
            group = table.read_row_group(inner, [self.column], use_threads=False).column(0)
        self._groups[number] = group
        while len(self._groups) > _GROUPS_KEPT:
            self._groups.popitem(last=False)
        return group


def picture_bytes(found: Any, folder: Path) -> bytes:
    """The bytes of a cell: bytes themselves, or a struct of bytes and path."""
    if isinstance(found, dict):
        if found.get("bytes") is None and found.get("path"):
            return (folder / str(found["path"])).read_bytes()
        found = found.get("bytes")
    if not isinstance(found, bytes):
        raise OSError("the cell is empty")
    return found


def find_parquet(walk: Walk) -> dict[str, list[str]] | None:
    """The parquet files of each part, if the folder holds these and no picture files."""
    for below in ("", "data"):
        names = names_ending(walk.root / below, PARQUET) if below else _in_root(walk)
        if names:
            prefix = f"{below}/" if below else ""
            parts = by_prefix(names)
            found = {part: [prefix + name for name in ours] for part, ours in parts.items()}
            return None if walk.has_images(below) else found
    held = {name: names_ending(walk.root / name, PARQUET) for name in walk.top.splits}
    splits = splits_among(held, lambda name: bool(held[name]), walk.root)
    if not splits or any(walk.has_images(name) for name in splits.values()):
        return None
    found = {split: [f"{name}/{file}" for file in held[name]] for split, name in splits.items()}
    return found if all(found.values()) else None


def _in_root(walk: Walk) -> list[str]:
    return [name for name in walk.top.archives if name.lower().endswith(PARQUET)]


def open_rows(root: Path, found: Mapping[str, Sequence[str]]) -> Images:
    """The pictures in parquet files below `root`; labels by the names that Hugging Face noted."""
    sources = {split: _source(root, files) for split, files in found.items()}
    return Images.of(match_classes(with_train(sources, root), root))


def _source(root: Path, files: Sequence[str]) -> Source:
    schema = open_parquet(root / files[0]).schema_arrow
    column = picture_column(schema)
    if column is None:
        raise UserError(
            f"{root / files[0]} has the columns {', '.join(schema.names)} and none of pictures; "
            f"wanted a column of encoded pictures (a struct with bytes), or of paths in a "
            f"single .parquet file"
        )
    store = Rows(root, files, column)
    if not len(store):
        raise UserError(f"{root / files[0]} has no rows; give one with pictures")
    return Source(root, store, range(len(store)), *_labels(root, files, schema))


def _labels(root: Path, files: Sequence[str], schema: Any) -> Labelled:
    noted = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    features = noted.get("info", {}).get("features", {})
    class_names = {
        name: feature["names"]
        for name, feature in features.items()
        if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    }
    known = [name for name in (*LABEL_COLUMNS, *class_names) if name in schema.names]
    if not known:
        return None, ()
    values: list[Any] = []
    for file in files:
        opened = open_parquet(root / file)
        if known[0] not in opened.schema_arrow.names:
            log.warning("%s has no column %s: all are taken, without labels", root / file, known[0])
            return None, ()
        values += opened.read(columns=[known[0]], use_threads=False).column(0).to_pylist()
    return label_texts(values, class_names.get(known[0]))
