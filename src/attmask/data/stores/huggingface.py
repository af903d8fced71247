"""Hugging Face datasets on disk, as `save_to_disk` writes them, opened by `datasets`."""

import logging
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.stores.folder import list_folder
from attmask.data.stores.labels import Labelled, label_texts, match_classes
from attmask.data.stores.parquet import LABEL_COLUMNS, picture_bytes, picture_column
from attmask.data.stores.splits import split_of, splits_among, with_train
from attmask.errors import UserError

log = logging.getLogger(__name__)


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote this folder."""
    if (folder / "dataset_dict.json").is_file():
        return True
    return all((folder / name).is_file() for name in ("state.json", "dataset_info.json"))


class Saved:
    """A store of the pictures in a saved dataset, called `name[row]`; every process maps it."""

    def __init__(self, folder: Path, called: str, column: str, images: int) -> None:
        self.folder, self.called, self.column, self.images = folder, called, column, images
        self._process = -1
        self._pictures: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_process": -1, "_pictures": None}

    def paths(self, rows: Int64[np.ndarray, " m"] | range) -> Iterable[Path]:
        """All files of the saved dataset, whichever pictures are asked for."""
        return sorted(self.folder.glob("*.arrow"))

    def __len__(self) -> int:
        return self.images

    def name(self, row: int) -> str:
        """The split and the row in it."""
        return f"{self.called}[{row}]"

    def read(self, row: int) -> bytes:
        """The encoded picture, or the file it points to."""
        if self._process != os.getpid():
            self._process, self._pictures = os.getpid(), _load(self.folder).data.column(self.column)
        return picture_bytes(self._pictures[row].as_py(), self.folder)

    @property
    def shards(self) -> Sequence[int]:
        """One shard: `datasets` presents its files as one table."""
        return (0,)


def open_saved(folder: Path) -> Images:
    """The pictures of a saved dataset, or of the splits of a saved dictionary of datasets."""
    if not (folder / "dataset_dict.json").is_file():
        return Images(_source(folder.parent, folder.name))
    there = list_folder(folder).folders
    known = [name for name in there if split_of(name) is not None]
    if not known:
        named = ", ".join(there) or "none"
        raise UserError(f"{folder} has the splits {named}; wanted train: rename one to it")
    splits = splits_among(known, lambda _: True, folder) or {}
    if left_out := [name for name in there if name not in known]:
        log.warning("%s: the splits %s are left out", folder, ", ".join(left_out))
    sources = {split: _source(folder, name) for split, name in splits.items()}
    return Images.of(match_classes(with_train(sources, folder), folder))


def _source(root: Path, called: str) -> Source:
    folder = root / called
    dataset = _load(folder)
    column = picture_column(dataset.data.schema)
    if column is None:
        raise UserError(
            f"{folder} has the columns {', '.join(dataset.column_names)} and none of pictures; "
            f"wanted a column of encoded pictures"
        )
    if not len(dataset):
        raise UserError(f"{folder} has no rows; give one with pictures")
    store = Saved(folder, called, column, len(dataset))
    return Source(root, store, range(len(store)), *_labels(dataset))


def _labels(dataset: Any) -> Labelled:
    names = {
        column: feature.names
        for column, feature in dataset.features.items()
        if hasattr(feature, "names")
    }
    known = [name for name in (*LABEL_COLUMNS, *names) if name in dataset.column_names]
    if not known:
        return None, ()
    return label_texts(dataset.data.column(known[0]).to_pylist(), names.get(known[0]))


def _load(folder: Path) -> Any:
    """Open the dataset memory-mapped and offline."""
    try:
        import datasets
    except ImportError as missing:
        raise UserError(
            f"{folder} is a Hugging Face dataset; run: pip install 'attmask[huggingface]'"
        ) from missing
    try:
        return datasets.load_from_disk(str(folder))
    except (ValueError, KeyError, FileNotFoundError) as fault:
        raise UserError(f"{folder} cannot be opened: {fault}; save the dataset again") from fault
