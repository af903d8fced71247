"""The predicted masks of images as files.

OUT/masks/NAME.png       the stored value of the class of each pixel, with a palette
    overlays/NAME.jpg    the image in the colours of its classes
    classes.csv          value, name and colour of each class
"""

from pathlib import Path

from PIL import Image

from attmask import atomic, distributed
from attmask.agreement import together
from attmask.evaluation.features.forward import Autocast
from attmask.evaluation.reporting.classification import as_csv, write_text
from attmask.evaluation.reporting.overlay import colour_of
from attmask.evaluation.reporting.segments import mask_image, segments_over
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.evaluation.whole_images import OVERLAYS, WholeImage, WholeImages, Written, in_folder

MASKS, CLASSES = "masks", "classes.csv"
_QUALITY = 90  # of JPEG


def write_masks(
    segmenter: TrainedSegmenter, images: WholeImages, out: Path, autocast: Autocast
) -> Written:
    """Segment images; all processes of a group call it together, and each writes its share."""
    with together():
        if distributed.is_main():
            write_text(out / CLASSES, _classes(segmenter))

    def write(image: WholeImage) -> None:
        labels = segmenter.labels(image.shown, image.size_hw, autocast).numpy()
        with atomic.file(in_folder(out, MASKS, image.name, ".png"), flushes=False) as part:
            mask_image(labels, segmenter.values).save(part)
        if images.overlays:
            drawn = segments_over(image.picture.numpy(), labels, segmenter.names)
            with atomic.file(in_folder(out, OVERLAYS, image.name, ".jpg"), flushes=False) as part:
                Image.fromarray(drawn).save(part, quality=_QUALITY)

    return images.each(out, write)


def _classes(segmenter: TrainedSegmenter) -> str:
    rows = [
        [value, name, colour_of(number)]
        for number, (value, name) in enumerate(zip(segmenter.values, segmenter.names, strict=True))
    ]
    return as_csv([["value", "class", "colour"], *rows])
