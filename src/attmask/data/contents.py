"""Hashes that tell sources apart: by the names and classes of images, and by what is stored."""

import hashlib

import numpy as np

from attmask.data.source import Source, StoreOfFiles
from attmask.data.stores.index import Stamp


def fingerprint(source: Source) -> str:
    """A hash of the names and classes of all images: the order of every batch depends on these."""
    return _names_and_classes(source).hexdigest()


def contents(source: Source) -> str:
    """A hash of the names and classes of all images and of their files: a changed file is another
    source."""
    digest = _names_and_classes(source)
    if not isinstance(source.store, StoreOfFiles):  # only the images themselves tell
        for index in range(len(source)):
            raw = source.read(index)
            kind = f"{raw.dtype} {raw.shape}" if isinstance(raw, np.ndarray) else "file"
            digest.update(kind.encode())
            digest.update(raw.tobytes() if isinstance(raw, np.ndarray) else raw)
        return digest.hexdigest()
    for file in source.store.paths(source.rows):
        try:
            stamp = Stamp.of(file)
            digest.update(f"{stamp.size} {stamp.mtime_ns}\n".encode())
        except OSError:
            digest.update(b"missing\n")
    return digest.hexdigest()


def _names_and_classes(source: Source) -> "hashlib._Hash":
    digest = hashlib.sha256()
    labels = source.labels
    for index in range(len(source)):
        label = -1 if labels is None else int(labels[index])
        digest.update(f"{source.name(index)}\t{label}\n".encode(errors="surrogateescape"))
    return digest
