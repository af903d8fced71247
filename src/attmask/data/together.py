"""Opening of the images by all processes of a run: one of them lists, the others open its index."""

import os
from pathlib import Path

from attmask import distributed
from attmask.data.images import Images
from attmask.data.sources import open_images
from attmask.errors import UserError


def open_together(data: str | Path, *, index: Path, channels: int | None = None) -> Images:
    """Open the images of `data` in every process, and keep the index in the folder `index`.

    The main process comes first; if the images have no index yet, it lists them. The first process
    of every other machine comes second: it opens that index on a shared disk, and lists only where
    there is none. All other processes open what is there by then. So a machine holds one index, in
    memory that its processes share. A `UserError` in one process is raised in all of them.
    """
    turns = (_is_first, _is_first_of_its_machine, lambda: True)
    images: Images | None = None
    for is_our_turn in turns[: 1 if distributed.world_size() == 1 else len(turns)]:
        fault = ""
        if images is None and is_our_turn():
            try:
                images = open_images(data, index=index, channels=channels).keep_index(index)
            except UserError as error:
                fault = str(error)
        if faults := [one for one in distributed.gather(fault) if one]:
            raise UserError(faults[0])
    assert images is not None
    return images


def _is_first() -> bool:
    return distributed.is_main()


def _is_first_of_its_machine() -> bool:
    """torchrun numbers the processes of a machine; without a number each is its own first."""
    return int(os.environ.get("LOCAL_RANK", "0")) == 0
