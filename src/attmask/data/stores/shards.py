"""Pictures in tar files, as WebDataset lays them out: what shares a stem is one sample."""

import logging
import os
import time
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from attmask.data.source import Source
from attmask.data.stores.folder import Walk, names_ending
from attmask.data.stores.index import Index, Part, Stamp
from attmask.data.stores.labels import LabelsBuilder, match_classes
from attmask.data.stores.names import Names, NamesBuilder
from attmask.data.stores.splits import by_prefix
from attmask.data.stores.tars import ENDINGS, read_samples
from attmask.errors import UserError

log = logging.getLogger(__name__)

COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_OPEN_FILES = 64  # a process may hold about 1,000


class _OpenFile:
    """A file that closes when nobody reads from it any more."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class Shards:
    """A store of pictures at known offsets in files below `root`."""

    def __init__(
        self,
        root: Path,
        files: Sequence[str],
        names: Names,
        file_of: Int64[np.ndarray, " M"],
        offsets: Int64[np.ndarray, " M"],
        sizes: Int64[np.ndarray, " M"],
    ) -> None:
        self.root, self.files, self.names = root, files, names
        self.file_of, self.offsets, self.sizes = file_of, offsets, sizes
        begins = np.flatnonzero(np.diff(np.asarray(file_of), prepend=-1))
        self._begins = tuple(begins.tolist())
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict()}

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        """The shard and the member in it."""
        return f"{self.files[int(self.file_of[row])]}/{self.names[row]}"

    def read(self, row: int) -> bytes:
        """The member's bytes; reading does not move a position, so forked processes may share."""
        file = self._file(int(self.file_of[row]))
        size = int(self.sizes[row])
        data = os.pread(file.number, size, int(self.offsets[row]))
        if len(data) < size:
            raise OSError(f"the shard ends after {len(data)} of {size} bytes")
        return data

    @property
    def shards(self) -> Sequence[int]:
        """The row where each file begins."""
        return self._begins

    def _file(self, number: int) -> _OpenFile:
        file = self._open.pop(number, None) or _OpenFile(self.root / self.files[number])
        self._open[number] = file
        while len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)
        return file


def shards_of(index: Index, part: Part) -> Source:
    """The source of one part that a scan of shards found."""
    root, columns = index.base / part.root, part.columns
    store = Shards(
        root, part.files, part.names, columns["shard"], columns["offset"], columns["size"]
    )
    return Source(root, store, np.arange(len(store), dtype=np.int64), part.labels, part.classes)


def find_shards(walk: Walk) -> dict[str, list[str]] | None:
    """The tar files of each part, if the folder holds these and no picture files.

    ImageNet's archives often lie beside the folders they were unpacked to: then those count.
    """
    if tars := _tars(walk.root):
        return None if walk.has_images("") else by_prefix(tars)
    train = _tars(walk.root / "train")
    if not train or walk.has_images("train"):
        return None
    found = {"train": [f"train/{name}" for name in train]}
    if (walk.root / "val").is_dir():  # shards may be added to it
        walk.watched["val"] = Stamp.of(walk.root / "val")
    if val := _tars(walk.root / "val"):
        found["val"] = [f"val/{name}" for name in val]
    return found


def refuse_compressed(path: Path) -> None:
    """A compressed tar cannot be read from the middle: say how to unpack it."""
    if path.name.lower().endswith(COMPRESSED):
        raise UserError(
            f"{path} is a compressed tar, of which no single picture can be read; "
            f"unpack it to a plain .tar (for .tar.gz: gunzip {path.name})"
        )


def _tars(where: Path) -> list[str]:
    found = names_ending(where, (".tar", *COMPRESSED))
    tars = [name for name in found if name.lower().endswith(".tar")]
    if found and not tars and len(found) == len(names_ending(where, ("",))):
        refuse_compressed(where / found[0])
    return tars


def scan_shards(walk: Walk, found: dict[str, list[str]]) -> Index:
    """Read the headers of all shards of a folder, once."""
    for name in (name for names in found.values() for name in names):
        walk.watched[name] = Stamp.of(walk.root / name)
    parts = {part: _scan(walk.root, names) for part, names in found.items()}
    if "val" in parts:
        parts["val"] = match_classes(
            parts["val"], parts["train"], "its val shards", f"{walk.root} (its train shards)"
        )
    return Index("shards", walk.root, parts, walk.watched, walk.began_ns)


def scan_one_shard(file: Path) -> Index:
    """Read the headers of a single shard."""
    began_ns, stamp = time.time_ns(), Stamp.of(file)
    return Index("shards", file, {"train": _scan(file.parent, [file.name])}, {"": stamp}, began_ns)


def _scan(root: Path, files: Sequence[str]) -> Part:
    """One part from some shards: labelled by their `.cls` or `.json`, else by their folders."""
    names, labels, by_folder = NamesBuilder(), LabelsBuilder(), LabelsBuilder()
    columns = {"shard": array("q"), "offset": array("q"), "size": array("q")}
    for number, file in enumerate(files):
        for sample in read_samples(root / file):
            names.add(os.fsencode(sample.name))
            if sample.label:
                labels.add(sample.label)
            if "/" in sample.name:
                by_folder.add(sample.name.split("/", 1)[0])
            for key, value in zip(columns, (number, sample.offset, sample.size), strict=True):
                columns[key].append(value)
    if not len(names):
        raise UserError(
            f"no images in {root / files[0]} and {len(files) - 1} more shards; "
            f"wanted members that end in {', '.join(ENDINGS)}"
        )
    if 0 < len(labels) < len(names):
        log.warning(
            "%d of %d samples in %s have no label: all are taken, without labels",
            len(names) - len(labels),
            len(names),
            root,
        )
    known = labels if len(labels) else by_folder
    numbers, classes = known.build() if len(known) == len(names) else (None, ())
    arrays = {key: np.frombuffer(column, dtype=np.int64) for key, column in columns.items()}
    return Part("", names.build(), numbers, classes, tuple(files), arrays)
