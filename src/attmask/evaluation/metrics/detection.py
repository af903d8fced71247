"""COCO's average precision of detected boxes and masks, over all images and for each class.

The measures are those of COCO's evaluation: average precision at ten thresholds of the IoU from 0.5
to 0.95, at most 100 detections an image, crowds neither wanted nor wrong, and small, medium and
large objects by the area that the annotations say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64

from attmask import distributed
from attmask.agreement import together
from attmask.data.coco import Annotated
from attmask.data.coco_masks import areas, mask_library
from attmask.errors import UserError
from attmask.evaluation.metrics.detected import Found, corner_and_size, image_f1
from attmask.metric import Metric
from attmask.wording import agree

PREFIX = "detect"

_KINDS = {"box": "bbox", "mask": "segm"}
# Six of COCO's twelve numbers, in its order; the others are recalls.
_MEASURES = {
    "ap": "AP",
    "ap50": "AP50",
    "ap75": "AP75",
    "small": "AP of small objects",
    "medium": "AP of medium objects",
    "large": "AP of large objects",
}


@dataclass(frozen=True)
class ClassRow:
    """The measures of one class in per cent, None where there is no such object."""

    name: str
    objects: int
    """Those that are to be found, without crowds."""
    box_ap: float | None
    box_ap50: float | None
    mask_ap: float | None = None
    mask_ap50: float | None = None


@dataclass(frozen=True, eq=False)
class Detection:
    """All measures of detections."""

    metrics: tuple[Metric, ...]
    rows: tuple[ClassRow, ...]
    f1: Mapping[int, float]
    """By image: the F1 of the boxes with a score of at least 0.5, in per cent."""
    coco: Mapping[str, tuple[float, ...]]
    """COCO's twelve numbers in 0..1 for box and mask, -1 where there are no such objects."""
    notes: tuple[str, ...] = ()

    @property
    def worst_first(self) -> list[int]:
        """The images, that of the lowest F1 first."""
        return sorted(self.f1, key=lambda index: (self.f1[index], index))


@dataclass(frozen=True, eq=False)
class _Image:
    """The truth and the detections of one image, without pixels."""

    size_wh: tuple[int, int]
    truth: Found
    """All with a score of 1."""
    area: Float32[np.ndarray, " n"]
    is_crowd: Bool[np.ndarray, " n"]
    found: Found
    f1: float


class DetectionScores:
    """Collects the detections in image after image, and measures all of them together.

    Without `masks`, only boxes are measured.
    """

    def __init__(self, names: Sequence[str], *, masks: bool = True, prefix: str = PREFIX) -> None:
        self.names, self.prefix = tuple(names), prefix
        self._kinds = ("box", "mask") if masks else ("box",)
        self._images: dict[int, _Image] = {}

    def __len__(self) -> int:
        return len(self._images)

    def update(self, index: int, found: Found, truth: Annotated) -> None:
        """Add the detections in image `index`; a second time replaces the first."""
        masks = "mask" in self._kinds
        if masks and found.rles is None:
            raise ValueError("the detections have no masks; use DetectionScores(masks=False)")
        wanted = Found(
            truth.boxes,
            np.ones(len(truth), dtype=np.float32),
            truth.labels,
            tuple(truth.rles()) if masks else None,
        )
        f1 = image_f1(found, truth)
        self._images[index] = _Image(truth.size_wh, wanted, truth.area, truth.is_crowd, found, f1)

    def result(self) -> Detection:
        """The measures over the images of all processes, in all processes."""
        images: dict[int, _Image] = {}
        for part in distributed.gather(self._images):
            images |= part
        if not images:
            raise ValueError("there are no images to measure detections on")
        with together():
            own = self._measured(images) if distributed.is_main() else None
        result = distributed.from_main(own)
        assert result is not None
        return result

    def _measured(self, images: Mapping[int, _Image]) -> Detection:
        if not any((~image.is_crowd).any() for image in images.values()):
            raise UserError(
                f"none of the {len(images)} images to measure on has an object, so nothing can be "
                "measured; choose annotated images"
            )
        metrics: list[Metric] = []
        coco: dict[str, tuple[float, ...]] = {}
        per_class: dict[str, tuple[list[float | None], list[float | None]]] = {}
        for kind in self._kinds:
            stats, precision = _evaluated(images, self.names, kind)
            coco[kind] = stats
            metrics += [
                Metric(
                    f"{self.prefix}.{kind}_{key}", 100 * value, "%", True, title=f"{kind} {said}"
                )
                for (key, said), value in zip(_MEASURES.items(), stats, strict=False)
                if value >= 0
            ]
            per_class[kind] = _by_class(precision), _by_class(precision[:1])
        objects = np.zeros(len(self.names), dtype=np.int64)
        for image in images.values():
            np.add.at(objects, image.truth.labels[~image.is_crowd], 1)
        none = [None] * len(self.names)
        columns = (*per_class["box"], *per_class.get("mask", (none, none)))
        rows = tuple(
            ClassRow(name, count, *values)
            for name, count, *values in zip(self.names, objects.tolist(), *columns, strict=True)
        )
        f1 = {index: images[index].f1 for index in sorted(images)}
        return Detection(tuple(metrics), rows, f1, coco, _notes(int((objects == 0).sum())))


def _evaluated(
    images: Mapping[int, _Image], names: Sequence[str], kind: str
) -> tuple[tuple[float, ...], Float64[np.ndarray, "T R K"]]:
    """COCO's twelve numbers, and the precision by threshold, recall and class."""
    mask_library()  # an error says how to install it
    from faster_coco_eval import COCO, COCOeval_faster

    truth: list[dict[str, Any]] = []
    found: list[dict[str, Any]] = []
    for index, image in images.items():
        for entry, crowd, area in zip(
            _entries(index, image.truth, kind), image.is_crowd, image.area, strict=True
        ):
            entry |= {"iscrowd": int(crowd), "area": float(area)}
            truth.append(entry)
        found += _entries(index, image.found, kind)
    shared = {
        "images": [
            {"id": index, "width": image.size_wh[0], "height": image.size_wh[1]}
            for index, image in images.items()
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names)],
    }
    both = [COCO({**shared, "annotations": _numbered(each)}) for each in (truth, found)]
    evaluation = COCOeval_faster(*both, _KINDS[kind], print_function=_say_nothing)
    evaluation.run()
    # The numbers of all sizes of objects, with at most 100 detections an image.
    precision = np.asarray(evaluation.eval["precision"], dtype=np.float64)[:, :, :, 0, -1]
    return tuple(float(value) for value in evaluation.stats), precision


def _entries(index: int, objects: Found, kind: str) -> list[dict[str, Any]]:
    """Objects as COCO has them; the area of a detection is that of its box or of its mask."""
    boxes = corner_and_size(objects.boxes)
    masks = objects.rles if kind == "mask" else None
    sizes = boxes[:, 2] * boxes[:, 3] if masks is None else areas(masks)
    entries = [
        {
            "image_id": index,
            "category_id": label,
            "bbox": box,
            "score": score,
            "area": float(size),
            "iscrowd": 0,
        }
        for label, box, score, size in zip(
            objects.labels.tolist(), boxes.tolist(), objects.scores.tolist(), sizes, strict=True
        )
    ]
    if masks is not None:
        for entry, mask in zip(entries, masks, strict=True):
            entry["segmentation"] = mask
    return entries


def _numbered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With ids from 1 on: COCO's evaluation takes 0 for no match."""
    for number, entry in enumerate(entries, start=1):
        entry["id"] = number
    return entries


def _say_nothing(*_: Any) -> None:
    """In place of the library's print."""


def _by_class(precision: Float64[np.ndarray, "T R K"]) -> list[float | None]:
    """The mean of the defined precisions of each class in per cent."""
    flat = precision.reshape(-1, precision.shape[2]).T
    return [100 * float(each.mean()) if (each > -1).all() else None for each in flat]


def _notes(classes: int) -> tuple[str, ...]:
    if not classes:
        return ()
    are = agree(classes, "class without an object is", "classes without an object are")
    return (f"{classes} {are} left out of the means",)
