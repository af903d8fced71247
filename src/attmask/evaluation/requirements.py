"""Checks before any image is read: crop sizes, blocks, empty sources."""

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel
from attmask.models.backbone import patches_along


def check_crop(
    model: FrozenModel, image_size: int | None, readout: Embedding | None = None
) -> None:
    """Raise an error for crops that are not whole patches, and for blocks that do not exist."""
    patches_along(image_size or model.image_size, model.backbone.patch_size)
    if readout is not None:
        readout.width(model.backbone)


def check_images(*sources: Source) -> None:
    """Raise an error for sources without images."""
    for source in sources:
        if len(source) == 0:
            raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")
