"""Opening of the images by all processes of a run: one of them lists, the others open its index."""

from pathlib import Path

from attmask import distributed
from attmask.agreement import together
from attmask.data.images import Images
from attmask.data.source import LARGE
from attmask.data.sources import open_images
from attmask.data.stores.index import holds_other
from attmask.launch import local_rank


def open_together(data: str | Path, *, index: Path, channels: int | None = None) -> Images:
    """Open the images of `data` in every process of a run, whose folder is `index`.

    The main process comes first; if the images have no index yet, it lists them. The first process
    of every other machine comes second: it opens that index on a shared disk, and lists only where
    there is none. All other processes open what is there by then. So a machine holds one index, in
    memory that its processes share. A `UserError` in one process is raised in all of them.

    A single process keeps the index of no more than `LARGE` images for the caller to save: nothing
    is written to the run's folder before its settings are known to be good.
    """
    turns = (distributed.is_main, lambda: local_rank() == 0, lambda: True)
    images: Images | None = None
    for is_our_turn in turns[: 1 if distributed.world_size() == 1 else len(turns)]:
        with together():
            if images is None and is_our_turn():
                images = open_images(data, index=index, channels=channels)
                if distributed.world_size() > 1 or len(images.train) > LARGE:
                    images = _kept(images, index)
    assert images is not None
    return images


def _kept(images: Images, folder: Path) -> Images:
    """The images in an index that all processes of the machine can open.

    The index of other images stays, because these may be the wrong ones: then every process lists
    for itself, with its columns on the disk of the run.
    """
    is_other = images.found is not None and holds_other(folder, images.found.root)
    return images if is_other else images.keep_index(folder)
