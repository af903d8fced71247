"""Hashes that tell sources apart: by the names and classes of images, and by what is stored."""

import hashlib
from itertools import repeat

import numpy as np

from attmask.data.source import LARGE, Source, StoreOfFiles
from attmask.data.stores.columns import pieces
from attmask.data.stores.index import Stamp

_LINES = 1 << 12  # that are hashed at once


def fingerprint(source: Source) -> str:
    """A hash of the names and classes of all images: the order of every batch depends on these.

    That of all images that a scan has listed is computed once and kept in the index. A large subset
    of them is hashed by that, its rows and its labels, not name by name.
    """
    listing = source.listing
    if listing is None or not (source.is_whole or len(source) > LARGE):
        return _names_and_classes(source).hexdigest()
    if listing.fingerprint is None:
        everything = Source(source.root, listing.store, range(len(listing.store)), listing.labels)
        listing.fingerprint = _names_and_classes(everything).hexdigest()
    if source.is_whole:
        return listing.fingerprint
    digest = hashlib.sha256(listing.fingerprint.encode())
    for piece in pieces(len(source)):
        rows, labels = source.rows[piece], source.labels
        digest.update(np.asarray(rows, dtype="<i8").tobytes())
        digest.update(b"" if labels is None else np.asarray(labels[piece], dtype="<i8").tobytes())
    return digest.hexdigest()


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
    """The hash of a line for each image: its name, a tab, the number of its class or -1."""
    digest = hashlib.sha256()
    for piece in pieces(len(source), _LINES):
        rows, labels = source.rows[piece], source.labels
        names = map(source.store.name, rows if isinstance(rows, range) else rows.tolist())
        numbers = repeat(-1, len(rows)) if labels is None else labels[piece].tolist()
        lines = (f"{name}\t{label}\n" for name, label in zip(names, numbers, strict=True))
        digest.update("".join(lines).encode(errors="surrogateescape"))
    return digest
