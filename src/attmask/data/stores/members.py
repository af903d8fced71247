"""The pictures of tar files as they are found, and the splits and classes their folders mean."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Int, Int64

from attmask.data.stores.columns import Chunks, Column, looked_up, pieces
from attmask.data.stores.index import Part
from attmask.data.stores.labels import Labelled, number_classes
from attmask.data.stores.names import NamesBuilder
from attmask.data.stores.splits import splits_among
from attmask.data.stores.tars import BLOCK, Sample

log = logging.getLogger(__name__)

_UPPER_FOLDERS = 3  # the data set's own, the split, the class
_NONE = -1


@dataclass(frozen=True)
class _Layout:
    """The folders that are splits, and the number of folders above them."""

    above: int
    splits: dict[str, str]


class Members:
    """Collects the pictures of tar files without one object per picture."""

    def __init__(self, root: Path, files: Sequence[str], scratch: Path | None = None) -> None:
        self.root, self.files, self._scratch = root, files, scratch
        self._names = NamesBuilder(scratch)
        self._shards: list[int] = []
        self._begins: list[int] = []
        self._columns = {"block": Column(scratch), "size": Column(scratch)}
        self._labels: dict[str, int] = {}
        self._label_of = Column(scratch)
        self._folders: dict[tuple[str, ...], int] = {}
        self._folder_of = Column(scratch)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, shard: int, sample: Sample) -> None:
        """One more picture, in the order of the files."""
        if self._shards[-1:] != [shard]:
            self._shards.append(shard)
            self._begins.append(len(self))
        self._names.add(os.fsencode(sample.name))
        label = sample.label
        self._label_of.append(self._labels.setdefault(label, len(self._labels)) if label else _NONE)
        folders = tuple(sample.name.split("/", _UPPER_FOLDERS)[:-1])
        self._folder_of.append(self._folders.setdefault(folders, len(self._folders)))
        self._columns["block"].append(sample.offset // BLOCK)
        self._columns["size"].append(sample.size)

    def build(self) -> Part:
        """All pictures as one split; a folder named like a split may be above the classes."""
        layout = self._layout()
        alone = layout is not None and len(layout.splits) == 1
        return self._part(None, layout.above + 1 if layout is not None and alone else 0)

    def build_splits(self) -> dict[str, Part]:
        """The splits that the folders in the tar mean, or all as train."""
        layout = self._layout()
        if layout is None:
            return {"train": self._part(None, 0)}
        numbers = {folder: number for number, folder in enumerate(layout.splits.values())}
        meant = [
            numbers.get(folders[layout.above], _NONE) if len(folders) > layout.above else _NONE
            for folders in self._folders
        ]
        split_of_folder, folders = np.array(meant, dtype=np.int64), self._folder_of.build()
        chosen = {split: Chunks(np.int64, self._scratch) for split in layout.splits}
        left_out = 0
        for piece in pieces(len(folders)):
            split_of_row = split_of_folder[folders[piece]]
            left_out += int((split_of_row == _NONE).sum())
            for number, rows in enumerate(chosen.values()):
                rows.add(np.flatnonzero(split_of_row == number) + piece.start)
        if left_out:
            log.warning("%s: %d images beside the splits are left out", self._where, left_out)
        return {split: self._part(rows.build(), layout.above + 1) for split, rows in chosen.items()}

    @property
    def _where(self) -> Path:
        return self.root / self.files[0] if len(self.files) == 1 else self.root

    def _layout(self) -> _Layout | None:
        """The splits at the top, or below a single top folder."""
        for above in (0, 1):
            names = {folders[above] for folders in self._folders if len(folders) > above}
            if splits := splits_among(names, lambda _: True, self._where):
                return _Layout(above, splits)
            if len({folders[:1] for folders in self._folders}) > 1:
                return None
        return None

    def _part(self, rows: Int64[np.ndarray, " k"] | None, class_level: int) -> Part:
        """Some pictures, or all, with their classes."""
        names = self._names.build()
        labels, folders = self._label_of.build(), self._folder_of.build()
        columns = {key: column.build_narrow() for key, column in self._columns.items()}
        begins, shards = np.array(self._begins), np.array(self._shards)
        if rows is not None:
            names = names.take(rows, self._scratch)
            labels, folders = (looked_up(c, rows, self._scratch) for c in (labels, folders))
            columns = {key: looked_up(c, rows, self._scratch) for key, c in columns.items()}
            begins = np.searchsorted(rows, begins)
            filled = np.diff(begins, append=len(rows)) > 0
            begins, shards = begins[filled], shards[filled]
        columns |= {"begin": begins, "shard": shards}
        found = self._classes(labels, folders, class_level)
        return Part("", names, *found, files=tuple(self.files), columns=columns)

    def _classes(
        self, labels: Int[np.ndarray, " k"], folders: Int[np.ndarray, " k"], level: int
    ) -> Labelled:
        """By `.cls` or `.json`, else by the folders at a level, else none."""
        without = sum(int((labels[piece] == _NONE).sum()) for piece in pieces(len(labels)))
        if not without:
            return number_classes(labels, list(self._labels), self._scratch)
        if without < len(labels):
            log.warning(
                "%d of %d samples in %s have no label: all are taken, without labels",
                without,
                len(labels),
                self.root,
            )
            return None, ()
        codes: dict[str, int] = {}
        called = [
            codes.setdefault(path[level], len(codes)) if len(path) > level else _NONE
            for path in self._folders
        ]
        by_folder = looked_up(np.array(called, dtype=np.int64), folders, self._scratch)
        if any((by_folder[piece] == _NONE).any() for piece in pieces(len(by_folder))):
            return None, ()
        return number_classes(by_folder, list(codes), self._scratch)
