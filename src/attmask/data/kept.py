"""Large arrays that are computed once and kept beside the index, for all processes to map."""

import hashlib
import logging
from collections.abc import Callable, Mapping

import numpy as np

from attmask.data.contents import fingerprint
from attmask.data.source import Source
from attmask.data.stores.mapped import map_npz, save_npz

log = logging.getLogger(__name__)


def kept_arrays(
    source: Source, called: str, make: Callable[[], Mapping[str, np.ndarray]]
) -> Mapping[str, np.ndarray]:
    """The arrays that `make` makes of a source, which depend on it and on what they are called.

    Without a folder of an index, or without room in it, they are made and stay in memory.
    """
    folder = None if source.listing is None else source.listing.folder
    if folder is None:
        return make()
    key = hashlib.sha256(f"{fingerprint(source)} {called}".encode()).hexdigest()[:16]
    file = folder / f"index-{key}.npz"
    try:
        if not file.is_file():
            save_npz(file, make())
        with np.load(file) as archive:
            names = archive.files
        return {name: map_npz(file, name) for name in names}
    except (OSError, ValueError, KeyError) as fault:
        log.warning("cannot keep %s in %s (%s): each process makes its own", called, folder, fault)
        return make()
