"""Images with annotated objects: a mask or a trimap for each."""

from pathlib import Path
from typing import ClassVar

from attmask.data.subset import spread_evenly
from attmask.errors import UserError
from attmask.evaluation.datasets.pictures import Pictures, Shown
from attmask.evaluation.metrics.objects import ObjectMasks
from attmask.settings import setting


class WithObjects(Pictures):
    """Those images that have a mask, of any images that `pretrain` reads."""

    layout: ClassVar[str] = (
        "SPLIT/CLASS/ID.jpg and, beside the splits, masks/SPLIT/CLASS/ID.png (nonzero is object) "
        "or trimaps/SPLIT/CLASS/ID.png (1 object, 2 background, 3 unknown)"
    )

    max_images: int | None = setting(
        None, "maximum number of images, evenly spread over the classes (null: all)", ge=1
    )

    def open(self, path: Path) -> Shown:
        """Open the images that have a mask; at least one is needed."""
        images = Pictures.open(self.model_copy(update={"max_images": None}), path).images
        with_mask = sorted(ObjectMasks(images).files)
        if not with_mask:
            raise UserError(f"no image of {images.root} has a mask; wanted {self.layout}")
        labels = None if images.labels is None else images.labels[with_mask]
        chosen = spread_evenly(labels, len(with_mask), self.max_images)
        return Shown(images.subset([with_mask[i] for i in chosen]))
