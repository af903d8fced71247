"""Which pictures a source holds, told apart by what is stored: a changed file is another source."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from attmask.data.source import Source
from attmask.data.stores.files import Files
from attmask.data.stores.huggingface import Saved
from attmask.data.stores.index import Stamp
from attmask.data.stores.parquet import Rows
from attmask.data.stores.shards import Shards


def contents(source: Source) -> str:
    """A hash of the names and classes of all pictures and of how their files look on disk."""
    digest = hashlib.sha256()
    labels = source.labels
    for index in range(len(source)):
        label = -1 if labels is None else int(labels[index])
        digest.update(f"{source.name(index)}\t{label}\n".encode(errors="surrogateescape"))
    files = _files(source)
    if files is None:  # an array, or a store of somebody else's: only the pictures themselves tell
        for index in range(len(source)):
            raw = source.read(index)
            kind = f"{raw.dtype} {raw.shape}" if isinstance(raw, np.ndarray) else "file"
            digest.update(kind.encode())
            digest.update(raw.tobytes() if isinstance(raw, np.ndarray) else raw)
        return digest.hexdigest()
    for file in files:
        try:
            stamp = Stamp.of(file)
            digest.update(f"{stamp.size} {stamp.mtime_ns}\n".encode())
        except OSError:
            digest.update(b"missing\n")
    return digest.hexdigest()


def _files(source: Source) -> Iterable[Path] | None:
    """The files that hold the pictures, in a fixed order, where these are known."""
    store = source.store
    if isinstance(store, Files):
        return (store.root / store.name(int(row)) for row in source.rows)
    if isinstance(store, Shards | Rows):
        return [store.root / name for name in store.files]
    if isinstance(store, Saved):
        return sorted(store.folder.glob("*.arrow"))
    return None
