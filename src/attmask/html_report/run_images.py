"""The images of a run, whatever it was trained for."""

from pathlib import Path

from attmask.curves.run_curves import RunCurves
from attmask.data.coco import open_boxed
from attmask.data.images import Images
from attmask.data.mask_files import find_masks
from attmask.data.sources import open_images
from attmask.detection.config import DetectConfig
from attmask.errors import UserError
from attmask.history import read_history
from attmask.segmentation.config import SegmentConfig


def data_of(run: RunCurves, moved: Path | None) -> Path | None:
    """Where the images of a run are: where they have moved to, or where its record says."""
    stated = read_history(run.folder).data
    return moved or (None if stated is None else Path(stated))


def images_of(run: RunCurves, moved: Path | None) -> Images:
    """Open the images of a run; of annotated ones the images alone."""
    path = data_of(run, moved)
    if path is None:
        raise UserError("the run does not say where its images are; give them with --data")
    if isinstance(run.config, SegmentConfig):
        masked = find_masks(path, channels=run.config.data.channels)
        return Images.of({name: source for name, (source, _) in masked.splits.items()})
    if isinstance(run.config, DetectConfig):
        return Images.of({name: part.source for name, part in open_boxed(path).items()})
    index = run.folder if moved is None else None
    return open_images(path, index=index, channels=run.config.data.channels)
