"""The segmentation of a network together with its UperNet head, as it was fine-tuned."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from attmask import distributed
from attmask.agreement import together
from attmask.data.class_names import list_values
from attmask.data.masks import MaskedImages, PixelClasses
from attmask.errors import UserError
from attmask.evaluation.datasets.annotated import Segments
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.reporting.segmentation import SHOWN_IMAGES, as_details, write_segmentation
from attmask.evaluation.requirements import check_images, result_folder, segmenter_of
from attmask.evaluation.segmentation.counting import count_pixels, examples
from attmask.evaluation.segmentation.inference import InferenceConfig
from attmask.evaluation.segmentation.measuring import draw_classes
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.evaluation.task import Measures
from attmask.overrides import checked
from attmask.settings import Config, setting


class SegmentUpernet(Config):
    """The measures of a fine-tuned segmenter, over all pixels and for each class."""

    mode: Literal["whole", "slide"] | None = setting(
        None, "show the whole image at a time, or windows of it (null: as in training)"
    )
    crop: int | None = setting(
        None, "side of a window in pixels (null: as in training)", ge=1, le=2**14
    )
    stride: int | None = setting(
        None, "distance between windows in pixels (null: as in training)", ge=1, le=2**14
    )
    flip: bool | None = setting(None, "average with the mirrored image (null: as in training)")
    scales: tuple[Annotated[float, Field(gt=0, le=16)], ...] | None = setting(
        None,
        "average over the image in these sizes (null: as in training)",
        paper="[1], multi-scale: [0.5, 0.75, 1, 1.25, 1.5, 1.75]",
        min_length=1,
    )

    def check(self, model: FrozenModel, data: Segments) -> None:
        """Check that there is a segmenter that knows all classes of the images."""
        check_images(data.images.source)
        _in_its_classes(self._segmenter(model), data.images)

    def shown_size(self, model: FrozenModel) -> None:
        """Images are shown whole, in sizes of their own."""
        return

    def measure(self, model: FrozenModel, data: Segments, extractor: FeatureExtractor) -> Measures:
        """Segment the images; the files of the result are written to the cache."""
        segmenter = self._segmenter(model)
        segmenter.network.to(extractor.device)
        images = _in_its_classes(segmenter, data.images)
        autocast = extractor.precision.autocast
        with counting("segmenting images", len(images)) as count:
            counted = count_pixels(
                segmenter, images, autocast, workers=extractor.workers, count=count
            )
        found = counted.result(segmenter.names)
        details = as_details(found, images.source.name)
        inference = segmenter.inference.model_dump(mode="json")
        files: tuple[Path, ...] = ()
        notes = found.notes
        with together():
            if distributed.is_main():
                key = [inference, segmenter.digest, extractor.contents(images.source), details]
                folder = result_folder(extractor, "segment-upernet", model, key)
                try:
                    worst = examples(segmenter, images, found.worst_first[:SHOWN_IMAGES], autocast)
                    files = write_segmentation(folder, found, worst, model.name)
                except UserError as fault:
                    notes = (*notes, f"no files were written: {fault}")
        details = {**details, "inference": inference}
        return Measures(metrics=found.metrics, notes=notes, details=details, files=files)

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Plot the IoU of each class."""
        draw_classes(cards, file, title="Segmentation by UperNet")

    def _segmenter(self, model: FrozenModel) -> TrainedSegmenter:
        segmenter = segmenter_of(model)
        asked = {key: value for key, value in self.model_dump().items() if value is not None}
        inference = {**segmenter.inference.model_dump(), **asked}
        return replace(segmenter, inference=checked(InferenceConfig, inference, "segment-upernet."))


def _in_its_classes(segmenter: TrainedSegmenter, images: MaskedImages) -> MaskedImages:
    """The images with the classes of the network: by their names, or else by their values."""
    own = images.classes
    if own.names == segmenter.names:
        known = own.values
    elif sorted(own.names) == sorted(segmenter.names) == sorted(set(own.names)):
        values = dict(zip(own.names, own.values, strict=True))
        known = tuple(values[name] for name in segmenter.names)
    else:
        _require_its_values(segmenter, images)
        known = segmenter.values
    ignored = tuple(value for value in own.ignored if value not in known)
    classes = PixelClasses(segmenter.names, known, ignored, min(own.first, *known))
    return replace(images, classes=classes)


def _require_its_values(segmenter: TrainedSegmenter, images: MaskedImages) -> None:
    """A class without a name is called by its value and may have any name in the training."""
    trained = dict(zip(segmenter.values, segmenter.names, strict=True))
    for name, value in zip(images.classes.names, images.classes.values, strict=True):
        if value not in trained:
            raise UserError(
                f"the segmenter does not know the class {name} of {images.source.root}, only "
                f"{list_values(segmenter.values)}; give images with the same classes"
            )
        if trained[value] != name and str(value) not in (trained[value], name):
            raise UserError(
                f"value {value} is {name} in the masks of {images.source.root} and "
                f"{trained[value]} in the training of the segmenter; give images with the same "
                "classes"
            )
