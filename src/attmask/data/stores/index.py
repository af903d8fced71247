"""The index of a scan of images, kept in a run so that the next start does not scan again."""

import json
import logging
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from jaxtyping import Int

from attmask.data.source import Listing, Source, Store
from attmask.data.stores.mapped import map_npz, save_npz
from attmask.data.stores.names import Names, pack

log = logging.getLogger(__name__)

FILE = "index.npz"
FOLDER_SIZE = -1
UNKNOWN_TIME = -1
_VERSION = 3
# Larger arrays are not read when an index is opened: that would take minutes for a billion images.
_CHECKED_BYTES = 1 << 26
# A file system's clock may tick every some milliseconds: a folder that changed just before it was
# scanned may change once more without a new time.
_SETTLED_NS = 50_000_000
# What reading a file of which any byte may be wrong can raise.
_DAMAGE = (OSError, ValueError, KeyError, EOFError, RuntimeError, ArithmeticError, BadZipFile)


@dataclass(frozen=True)
class Stamp:
    """Size and modification time of a watched file or folder (a folder's size is ignored)."""

    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        """The current stamp of a path."""
        status = path.stat()
        is_folder = stat.S_ISDIR(status.st_mode)
        return cls(FOLDER_SIZE if is_folder else status.st_size, status.st_mtime_ns)


@dataclass(frozen=True, eq=False)
class Part:
    """The pictures of one split: where they are relative to, their names and classes.

    If files hold several pictures, `files` names them and `columns` locates the pictures.
    """

    root: str
    names: Names
    labels: Int[np.ndarray, " M"] | None = None
    classes: Sequence[str] = ()
    files: Sequence[str] = ()
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)
    fingerprint: str | None = None
    """The hash of all names and classes, if known."""


@dataclass(frozen=True, eq=False)
class Index:
    """The splits of a data set, and what must not have changed since.

    `watched` names files and folders relative to `root` (the empty name is `root` itself).
    """

    kind: str
    root: Path
    parts: Mapping[str, Part]
    watched: Mapping[str, Stamp]
    began_ns: int = 0
    """When the scan began; not saved."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """The number of skipped files by ending."""
    folder: Path | None = None
    """The folder it was loaded from."""

    @property
    def base(self) -> Path:
        """The folder that names are relative to: the root, or the folder of a list or shard."""
        return self.root if self.root.is_dir() else self.root.parent

    @property
    def can_be_trusted(self) -> bool:
        """Whether later changes would be noticed: all was listed and had not just changed."""
        latest = self.began_ns - _SETTLED_NS
        return all(0 <= stamp.mtime_ns <= latest for stamp in self.watched.values())

    def source(self, part: Part, root: Path, store: Store) -> Source:
        """The source of a part, whose pictures are in `store`."""
        listing = Listing(store, part.labels, self.folder, part.fingerprint)
        return Source(root, store, range(len(store)), part.labels, part.classes, listing)

    def save(self, folder: Path) -> None:
        """Write the index to `folder`."""
        arrays: dict[str, np.ndarray] = {}
        about: dict[str, Any] = {
            "version": _VERSION,
            "kind": self.kind,
            "root": str(self.root.absolute()),
            "parts": {},
            "skipped": dict(self.skipped),
        }
        for name, part in self.parts.items():
            about["parts"][name] = {
                "root": part.root,
                "images": len(part.names),
                "fingerprint": part.fingerprint,
                "classes": list(part.classes),
                "files": list(part.files),
                "columns": list(part.columns),
            }
            arrays |= {f"{name}.block": part.names.block, f"{name}.ends": part.names.ends}
            arrays |= {f"{name}.column.{key}": column for key, column in part.columns.items()}
            if part.labels is not None:
                arrays[f"{name}.labels"] = part.labels
        watched = pack(self.watched)
        stamps = [(stamp.size, stamp.mtime_ns) for stamp in self.watched.values()]
        arrays |= {"watched.block": watched.block, "watched.ends": watched.ends}
        arrays["stamps"] = np.array(stamps, dtype=np.int64).reshape(-1, 2)
        text = json.dumps(about, ensure_ascii=True)
        arrays["about"] = np.frombuffer(text.encode(), dtype=np.uint8)
        save_npz(folder / FILE, arrays)

    def is_fresh(self) -> bool:
        """Whether no watched file or folder has changed."""
        try:
            return all(Stamp.of(self.root / name) == was for name, was in self.watched.items())
        except OSError:
            return False


def is_index(file: Path) -> bool:
    """Whether a file is an index, or arrays that are kept beside one, finished or not."""
    return file.suffix == ".npz" and file.stem.rpartition("@")[2].partition("-")[0] == "index"


def holds_other(folder: Path, root: Path) -> bool:
    """Whether `folder` holds an index of images at another path."""
    try:
        about = json.loads(map_npz(folder / FILE, "about").tobytes())
        return bool(about["root"] != str(root.absolute()))
    except _DAMAGE:
        return False


def load_index(folder: Path, root: Path) -> Index | None:
    """The index in `folder`, if it is about `root` and nothing has changed since."""
    file = folder / FILE
    try:
        if not file.is_file():
            return None
        index = _read(file, root)
    except _DAMAGE as fault:
        log.info("%s cannot be used (%s): the images are scanned again", file, fault)
        return None
    if index is None or not index.is_fresh():
        log.info("the images have changed since the last scan and are scanned again")
        return None
    return index


def _read(file: Path, root: Path) -> Index | None:
    with ZipFile(file) as archive:
        for member in archive.infolist():
            if member.file_size <= _CHECKED_BYTES:
                archive.read(member)  # raises where its checksum is wrong
        held = {name.removesuffix(".npy") for name in archive.namelist()}
    about = json.loads(map_npz(file, "about").tobytes())
    if about["version"] != _VERSION or about["root"] != str(root.absolute()):
        return None
    parts = {}
    for name, part in about["parts"].items():
        names = _names(file, name, part["images"])
        labels = map_npz(file, f"{name}.labels") if f"{name}.labels" in held else None
        if labels is not None and len(labels) != len(names):
            raise ValueError(f"it has {len(labels)} labels of {len(names)} images")
        parts[name] = Part(
            root=part["root"],
            names=names,
            labels=labels,
            classes=tuple(part["classes"]),
            files=tuple(part["files"]),
            columns={key: map_npz(file, f"{name}.column.{key}") for key in part["columns"]},
            fingerprint=part["fingerprint"],
        )
    stamps = [Stamp(*stamp) for stamp in map_npz(file, "stamps").tolist()]
    watched = dict(zip(_names(file, "watched", len(stamps)), stamps, strict=True))
    return Index(about["kind"], root, parts, watched, skipped=about["skipped"], folder=file.parent)


def _names(file: Path, name: str, count: int) -> Names:
    return Names(map_npz(file, f"{name}.block"), map_npz(file, f"{name}.ends"), count)
