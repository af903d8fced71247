"""Open the images of DATA, whatever kind it is."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from attmask.data.images import Images
from attmask.data.stores import arrays, lists
from attmask.data.stores.arrays import open_arrays
from attmask.data.stores.cifar import LAYOUTS, find_cifar, open_cifar
from attmask.data.stores.columns import disk_of
from attmask.data.stores.flowers import is_flowers, scan_flowers
from attmask.data.stores.folder import Walk, list_folder, scan_folder
from attmask.data.stores.huggingface import is_saved, open_saved
from attmask.data.stores.index import Index, load_index
from attmask.data.stores.lists import scan_list
from attmask.data.stores.parquet import find_parquet, open_parquet, open_rows, picture_column
from attmask.data.stores.shards import (
    find_shards,
    refuse_compressed,
    scan_one_shard,
    scan_shards,
)
from attmask.errors import UserError

_ACCEPTED = (
    "a folder of images, a list (.txt, .csv, .tsv, .parquet), tar shards, "
    "a .npy or .npz file, a Hugging Face dataset on disk, or CIFAR or Flowers-102 as published"
)


def images_path(data: str | Path) -> Path:
    """The path of the images; an empty text, which would mean the current folder, is an error."""
    if data == "":
        raise UserError(
            "the path of the images is empty, perhaps an unset variable; "
            "give a folder or file (. is the current folder)"
        )
    return Path(data)


def open_images(
    data: str | Path,
    *,
    index: Path | None = None,
    channels: int | None = None,
    beside: Collection[str] = (),
) -> Images:
    """Open the images of `data`, of any kind; `index` is a folder that may hold an index.

    A scan collects long columns on the disk of `index`, if one is given, otherwise in memory.
    `channels` is the wanted number, if known: some arrays can be read in two ways. Folders named
    in `beside` lie beside the splits and hold no images of the data set, but masks of them.
    """
    path = images_path(data)
    try:
        if not path.exists():
            raise UserError(f"there is no {path}; give {_ACCEPTED}")
        if index is not None and (known := load_index(index, path)) is not None:
            return Images.indexed(known)
        scratch = None if index is None else disk_of(index)
        if path.is_dir():
            return _open_folder(path, scratch, beside)
        return _open_file(path, channels, scratch)
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot read {path}: {why}; give {_ACCEPTED}") from fault


def _open_folder(path: Path, scratch: Path | None, beside: Collection[str]) -> Images:
    if is_saved(path):
        return open_saved(path)
    if is_flowers(path):
        return _scanned(scan_flowers(path))
    published = _published_in(path)
    if (layout := find_cifar(published)) is not None:
        return open_cifar(published, layout)
    walk = Walk(path, beside)
    if tars := find_shards(walk):
        return _scanned(scan_shards(walk, tars, scratch))
    if rows := find_parquet(walk):
        return open_rows(path, rows)
    return _scanned(scan_folder(walk, scratch))


def _published_in(path: Path) -> Path:
    """The folder of CIFAR that was unpacked in `path` and is alone there; or else `path`."""
    known = [layout.folder for layout in LAYOUTS if (path / layout.folder).is_dir()]
    if len(known) > 1:
        raise UserError(f"{path} holds {' and '.join(known)}; give one of these folders")
    if known and list_folder(path).folders == known:
        return path / known[0]
    return path


def _open_file(path: Path, channels: int | None, scratch: Path | None) -> Images:
    refuse_compressed(path)
    ending = path.suffix.lower()
    if ending == ".tar":
        return _scanned(scan_one_shard(path, scratch))
    if ending in arrays.ENDINGS:
        return open_arrays(path, channels)
    if ending == ".parquet" and picture_column(open_parquet(path).schema_arrow) is not None:
        return open_rows(path.parent, {"train": [path.name]})
    if ending in lists.ENDINGS:
        return _scanned(scan_list(path, scratch))
    raise UserError(f"{path} is a file of an unknown kind; give {_ACCEPTED}")


def _scanned(index: Index) -> Images:
    return replace(Images.indexed(index), found=index)
