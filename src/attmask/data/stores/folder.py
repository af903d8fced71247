"""A folder of picture files: split folders, one sub-folder a class, or without labels."""

import logging
import os
import time
from collections import Counter
from collections.abc import Collection, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attmask.data.pictures.endings import (
    ENDINGS,
    HEIF_ENDINGS,
    INSTALL_HEIF,
    ending_of,
    picture_endings,
)
from attmask.data.stores.columns import Chunks, narrowest
from attmask.data.stores.index import FOLDER_SIZE, UNKNOWN_TIME, Index, Part, Stamp
from attmask.data.stores.labels import match_classes
from attmask.data.stores.names import NamesBuilder
from attmask.data.stores.splits import SIDE_FOLDERS, split_of, splits_among, with_train
from attmask.errors import UserError

log = logging.getLogger(__name__)

COMPRESSED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
TARS = (".tar", *COMPRESSED_TARS)
PARQUET = (".parquet",)
ARCHIVES = (*TARS, *PARQUET)
"""Files that hold many pictures each."""


class Listing(NamedTuple):
    """The folders and the archives in a folder, sorted, without hidden ones."""

    folders: list[str]
    archives: list[str]

    @property
    def splits(self) -> list[str]:
        """The folders that are called like a split."""
        return [name for name in self.folders if split_of(name) is not None]


class Walk:
    """Visits folders below a root and records the stamp of each.

    Folders named in `beside` are not looked for splits or classes.
    """

    def __init__(self, root: Path, beside: Collection[str] = ()) -> None:
        self.root, self._beside = root, frozenset(beside)
        self.began_ns = time.time_ns()
        self.watched = {"": Stamp(FOLDER_SIZE, root.stat().st_mtime_ns)}

    def files(self, below: str = "") -> Iterator[bytes]:
        """Every file below `below`, relative to it, in the order of path parts.

        Hidden files are left out, links are followed once. Names stay bytes: a million of them
        as `Path` objects would take half a gigabyte.
        """
        folder = self.root / below
        visited: set[tuple[int, int]] = set()
        pending = [self._entries(folder, below, b"", folder.stat(), visited)]
        while pending:
            for name, status in pending[-1]:
                if status is not None:
                    pending.append(self._entries(folder, below, name, status, visited))
                    break
                yield name
            else:
                pending.pop()

    def _entries(
        self,
        folder: Path,
        below: str,
        inner: bytes,
        status: os.stat_result,
        visited: set[tuple[int, int]],
    ) -> Iterator[tuple[bytes, os.stat_result | None]]:
        """The names in one folder, sorted, each with its status where it is a folder."""
        # A link to a folder above would otherwise be walked for ever.
        if (status.st_dev, status.st_ino) in visited:
            return
        visited.add((status.st_dev, status.st_ino))
        names: list[bytes] = []
        folders: dict[bytes, os.stat_result] = {}
        where = folder / os.fsdecode(inner)
        known_ns = status.st_mtime_ns
        try:
            with os.scandir(os.fsencode(where)) as entries:
                for entry in entries:
                    if entry.name.startswith(b"."):
                        continue
                    names.append(entry.name)
                    try:
                        if entry.is_dir():
                            folders[entry.name] = entry.stat()
                    except OSError as fault:  # a link to itself, or to where we may not look
                        link = where / os.fsdecode(entry.name)
                        log.warning("cannot follow %s: %s", link, fault.strerror)
                        known_ns = UNKNOWN_TIME
        except OSError as fault:
            if not inner:
                raise
            log.warning("cannot list %s: %s; it is skipped", where, fault.strerror)
            known_ns = UNKNOWN_TIME
        self.watched["/".join(filter(None, (below, os.fsdecode(inner))))] = Stamp(
            FOLDER_SIZE, known_ns
        )
        names.sort()
        prefix = inner + b"/" if inner else b""
        for name in names:
            yield prefix + name, folders.get(name)

    @cached_property
    def top(self) -> "Listing":
        """The root itself, listed once: it may hold a million files."""
        listed = list_folder(self.root)
        folders = [name for name in listed.folders if name not in self._beside]
        return listed._replace(folders=folders)

    def has_images(self, below: str) -> bool:
        """Whether there is a picture file anywhere below."""
        endings = _ending_bytes()
        return any(name.lower().endswith(endings) for name in self.files(below))


@cache
def _ending_bytes() -> tuple[bytes, ...]:
    return tuple(ending.encode() for ending in picture_endings())


def names_ending(folder: Path, endings: tuple[str, ...]) -> list[str]:
    """The names in a folder with these endings, sorted; none if there is no folder."""
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = (entry.name for entry in entries if entry.name.lower().endswith(endings))
        return sorted(name for name in names if not name.startswith("."))


def list_folder(root: Path) -> Listing:
    """The content of a folder; a link that cannot be followed is not a folder."""
    folders, archives = [], []
    with os.scandir(root) as entries:
        for entry in entries:
            name = entry.name
            if name.lower().endswith(ARCHIVES):
                archives.append(name)
            try:
                if entry.is_dir():
                    folders.append(name)
            except OSError:
                continue
    visible = (sorted(n for n in names if not n.startswith(".")) for names in (folders, archives))
    return Listing(*visible)


def scan_folder(walk: Walk, scratch: Path | None = None) -> Index:
    """Find the pictures below a root, whichever of the known layouts it has.

    Long columns are collected on the disk of `scratch`.
    """
    root = walk.root
    skipped: Counter[str] = Counter()
    splits = splits_among(walk.top.folders, walk.has_images, root)
    if splits is None:
        parts = {"train": _scan(walk, "", skipped, scratch)}
    else:
        parts = {split: _scan(walk, below, skipped, scratch) for split, below in splits.items()}
        if beside := names_ending(root, picture_endings()):
            log.warning("%s: %d images beside the splits are left out", root, len(beside))
    parts = match_classes(with_train(parts, root), root)
    return Index("files", root, parts, walk.watched, walk.began_ns, skipped)


def _scan(walk: Walk, below: str, skipped: Counter[str], scratch: Path | None) -> Part:
    """One part from one folder: labelled by its sub-folders, or without labels.

    Other files are counted in `skipped` by their ending.
    """
    names, endings = NamesBuilder(scratch), _ending_bytes()
    counts: dict[bytes, int] = {}
    direct = 0
    for name in walk.files(below):
        if name.lower().endswith(endings):
            names.add(name)
            first, slash, _ = name.partition(b"/")
            if slash:
                counts[first] = counts.get(first, 0) + 1
            else:
                direct += 1
        elif not is_beside(name):
            skipped[ending_of(name)] += 1
    if not names:
        raise UserError(_nothing_found(walk, below))
    if direct:
        if counts:
            log.warning(
                "%s has images beside sub-folders with images: all %d are taken, without labels",
                walk.root / below,
                len(names),
            )
        return Part(below, names.build())
    # The files of a class lie together, and the classes come in the order of their names.
    labels = Chunks(narrowest(len(counts)), scratch)
    for label, count in enumerate(counts.values()):
        labels.add(np.full(count, label))
    return Part(below, names.build(), labels.build(), tuple(map(os.fsdecode, counts)))


def is_beside(name: bytes) -> bool:
    """Whether a file is in a folder of masks or other companions of the images."""
    return os.fsdecode(name.partition(b"/")[0]).lower() in SIDE_FOLDERS


def _nothing_found(walk: Walk, below: str) -> str:
    """The error message for a folder without images."""
    folder, wanted = walk.root / below, ", ".join(ENDINGS)
    endings = Counter(ending_of(name) for name in walk.files(below))
    if not endings:
        return f"no images in {folder}: it has no files; wanted {wanted}"
    if any(ending in HEIF_ENDINGS for ending in endings):
        wanted += f"; to read {HEIF_ENDINGS[0]}: {INSTALL_HEIF}"
    found = ", ".join(ending for ending, _ in endings.most_common(5))
    return (
        f"no images in {folder}: found {endings.total()} files with endings {found}; "
        f"wanted {wanted}"
    )
