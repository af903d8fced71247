"""The detections of a network together with its cascade, as it was fine-tuned."""

from collections.abc import Sequence
from pathlib import Path

from attmask import distributed
from attmask.agreement import together
from attmask.data.coco import BoxedImages
from attmask.errors import UserError
from attmask.evaluation.datasets.annotated import Objects
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.detection.measuring import detect_all, examples
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.bars import draw_bars
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.detection import SHOWN_IMAGES, as_details, write_detection
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.requirements import check_images, detector_of, result_folder
from attmask.evaluation.task import Measures
from attmask.settings import Config


class DetectCascade(Config):
    """COCO's average precision of a fine-tuned detector, over all classes and for each."""

    def check(self, model: FrozenModel, data: Objects) -> None:
        """Check that there is a detector of the classes of the images."""
        check_images(data.images.source)
        _require_its_classes(detector_of(model), data.images)

    def shown_size(self, model: FrozenModel) -> None:
        """Images are shown whole, in sizes of their own."""
        return

    def measure(self, model: FrozenModel, data: Objects, extractor: FeatureExtractor) -> Measures:
        """Detect the objects of the images; the files of the result are written to the cache."""
        detector, images = detector_of(model), data.images
        detector.network.to(extractor.device)
        autocast = extractor.precision.autocast
        with counting("detecting objects in images", len(images)) as count:
            found = detect_all(detector, images, autocast, workers=extractor.workers, count=count)
        details = as_details(found, images.source.name)
        files: tuple[Path, ...] = ()
        notes = found.notes
        with together():
            if distributed.is_main():
                key = [detector.digest, extractor.contents(images.source), details]
                folder = result_folder(extractor, "detect-cascade", model, key)
                try:
                    worst = [(index, found.f1[index]) for index in found.worst_first]
                    shown = examples(detector, images, worst[:SHOWN_IMAGES], autocast)
                    files = write_detection(folder, found, shown, detector.names, title=model.name)
                except UserError as fault:
                    notes = (*notes, f"no files were written: {fault}")
        return Measures(metrics=found.metrics, notes=notes, details=details, files=files)

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Plot the average precision of each class, the most frequent first."""
        by_network = {
            card.checkpoint: {row["name"]: row for row in card.details["classes"]} for card in cards
        }
        first = next(iter(by_network.values()))
        names = sorted(first, key=lambda name: -first[name]["objects"])
        series = {
            f"{card.checkpoint}: mean {card.metrics[0].value:.1f}": [
                by_network[card.checkpoint].get(name, {}).get("box_ap") for name in names
            ]
            for card in cards
        }
        across = "average precision of boxes of each class, per cent"
        draw_bars(names, series, file, title="Detection by a cascade", across=across)


def _require_its_classes(detector: TrainedDetector, images: BoxedImages) -> None:
    known = dict(zip(detector.category_ids, detector.names, strict=True))
    given = dict(zip(images.category_ids, images.names, strict=True))
    for number in sorted(known.keys() | given.keys()):
        if known.get(number) != given.get(number):
            raise UserError(
                f"category {number} is {given.get(number, 'missing')} in {images.coco.file} and "
                f"{known.get(number, 'missing')} in the training of the detector; give images with "
                "the same categories"
            )
