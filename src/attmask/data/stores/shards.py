"""Pictures in tar files, as WebDataset lays them out: what shares a stem is one sample."""

import os
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Int64

from attmask.data.pictures.endings import ENDINGS
from attmask.data.source import Source
from attmask.data.stores.folder import COMPRESSED_TARS, TARS, Walk, names_ending
from attmask.data.stores.index import Index, Part, Stamp
from attmask.data.stores.labels import match_classes
from attmask.data.stores.members import Members
from attmask.data.stores.names import Names
from attmask.data.stores.splits import TRAIN, by_prefix, splits_among, with_train
from attmask.data.stores.tars import BLOCK, RAW_ENDING, read_samples
from attmask.errors import UserError

_OPEN_FILES = 64  # a process may hold about 1,000


class _OpenFile:
    """An open file that is closed when it is no longer used."""

    def __init__(self, path: Path) -> None:
        self.number = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class Shards:
    """A store of pictures at known blocks of files below `root`.

    The pictures from row `begins[i]` on are in file `numbers[i]`.
    """

    def __init__(
        self,
        root: Path,
        files: Sequence[str],
        names: Names,
        *,
        begins: Int64[np.ndarray, " shards"],
        numbers: Int64[np.ndarray, " shards"],
        blocks: Int[np.ndarray, " M"],
        sizes: Int[np.ndarray, " M"],
    ) -> None:
        self.root, self.files, self.names = root, files, names
        self.begins, self.numbers, self.blocks, self.sizes = begins, numbers, blocks, sizes
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": OrderedDict()}

    def paths(self, rows: Int64[np.ndarray, " m"] | range) -> Iterable[Path]:
        """All files of the store, whichever pictures are asked for."""
        return [self.root / name for name in self.files]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, row: int) -> str:
        """The shard and the member in it."""
        return f"{self.files[self._number(row)]}/{self.names[row]}"

    def read(self, row: int) -> bytes:
        """The member's bytes; reading does not move a position, so forked processes may share."""
        file = self._file(self._number(row))
        size = int(self.sizes[row])
        data = os.pread(file.number, size, int(self.blocks[row]) * BLOCK)
        if len(data) < size:
            raise OSError(f"the shard ends after {len(data)} of {size} bytes")
        return data

    @property
    def shards(self) -> Sequence[int]:
        """The row where each file begins."""
        return tuple(self.begins.tolist())

    def _number(self, row: int) -> int:
        """The number of the file that holds a picture."""
        return int(self.numbers[np.searchsorted(self.begins, row, side="right") - 1])

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
        root,
        part.files,
        part.names,
        begins=columns["begin"],
        numbers=columns["shard"],
        blocks=columns["block"],
        sizes=columns["size"],
    )
    return index.source(part, root, store)


def find_shards(walk: Walk) -> dict[str, list[str]] | None:
    """The tar files of each part, if the folder holds these and no picture files.

    ImageNet's archives often lie beside the folders they were unpacked to: then those count.
    """
    if tars := _plain(walk.root, [n for n in walk.top.archives if n.lower().endswith(TARS)]):
        return None if walk.has_images("") else by_prefix(tars)
    held = {
        name: _plain(walk.root / name, names_ending(walk.root / name, TARS))
        for name in walk.top.splits
    }
    splits = splits_among(held, lambda name: bool(held[name]), walk.root)
    if not splits or not all(held[name] for name in splits.values()):
        return None
    if any(walk.has_images(name) for name in splits.values()):
        return None
    for name in held:  # shards may be added to it
        walk.watched[name] = Stamp.of(walk.root / name)
    return {split: [f"{name}/{tar}" for tar in held[name]] for split, name in splits.items()}


def refuse_compressed(path: Path) -> None:
    """Raise an error for a compressed tar, which has no random access."""
    if path.name.lower().endswith(COMPRESSED_TARS):
        raise UserError(
            f"{path} is a compressed tar, of which no single picture can be read; "
            f"unpack it to a plain .tar (for .tar.gz: gunzip {path.name})"
        )


def _plain(where: Path, found: list[str]) -> list[str]:
    """The tars that can be read; where there are compressed ones alone, these are refused."""
    tars = [name for name in found if name.lower().endswith(".tar")]
    if found and not tars and len(found) == len(names_ending(where, ("",))):
        refuse_compressed(where / found[0])
    return tars


def scan_shards(
    walk: Walk, found: Mapping[str, Sequence[str]], scratch: Path | None = None
) -> Index:
    """Read the headers of all shards of a folder, once; without splits, those in them count."""
    for name in (name for names in found.values() for name in names):
        walk.watched[name] = Stamp.of(walk.root / name)
    skipped: Counter[str] = Counter()
    members = {split: _read(walk.root, names, skipped, scratch) for split, names in found.items()}
    if list(members) == [TRAIN]:
        parts = members[TRAIN].build_splits()
    else:
        parts = {split: read.build() for split, read in members.items()}
    parts = match_classes(with_train(parts, walk.root), walk.root)
    return Index("shards", walk.root, parts, walk.watched, walk.began_ns, skipped)


def scan_one_shard(file: Path, scratch: Path | None = None) -> Index:
    """Read the headers of a single shard."""
    began_ns, stamp = time.time_ns(), Stamp.of(file)
    skipped: Counter[str] = Counter()
    parts = _read(file.parent, [file.name], skipped, scratch).build_splits()
    parts = match_classes(with_train(parts, file), file)
    return Index("shards", file, parts, {"": stamp}, began_ns, skipped)


def _read(root: Path, files: Sequence[str], skipped: Counter[str], scratch: Path | None) -> Members:
    """The pictures of some shards."""
    members = Members(root, files, scratch)
    for number, file in enumerate(files):
        for sample in read_samples(root / file, skipped):
            members.add(number, sample)
    if not len(members):
        raise UserError(
            f"no images in {root / files[0]} and {len(files) - 1} more shards; "
            f"wanted members that end in {', '.join((*ENDINGS, RAW_ENDING))}"
        )
    return members
