"""Predictions as the lines of a CSV table, one line per image.

name,label,class,probability,class_2,probability_2
cat/1.jpg,cat,cat,0.982311,dog,0.013057
"""

from collections.abc import Iterator

from attmask.data.label_sets import SEPARATOR, joined
from attmask.evaluation.predictions import Prediction, Predictions


def lines(predictions: Predictions, *, every_class: bool = False) -> Iterator[list[str]]:
    """The cells of the header, then of each image.

    A multi-label classifier has its classes and their probabilities joined in one cell each.
    `every_class` adds a column with the probability of each class.
    """
    known = predictions.classifier
    top = 1 if known.multi_label else predictions.choice.top
    header = ["name"]
    header += ["split"] if len(predictions.sources) > 1 else []
    header += ["label"] if predictions.has_labels else []
    header += ["class", "probability"]
    for rank in range(2, top + 1):
        header += [f"class_{rank}", f"probability_{rank}"]
    header += [f"probability:{name}" for name in known.classes] if every_class else []
    yield header
    for prediction in predictions:
        cells = [prediction.name]
        cells += [prediction.split] if len(predictions.sources) > 1 else []
        cells += [prediction.label or ""] if predictions.has_labels else []
        cells += _classes(prediction, top, is_multi_label=known.multi_label)
        if every_class:
            every = prediction.every
            cells += [""] * len(known.classes) if every is None else map(_number, every.tolist())
        yield cells


def _classes(prediction: Prediction, top: int, *, is_multi_label: bool) -> list[str]:
    if is_multi_label:
        numbers = SEPARATOR.join(map(_number, prediction.probabilities))
        return [joined(prediction.classes), numbers]
    cells: list[str] = []
    for name, probability in zip(prediction.classes, prediction.probabilities, strict=True):
        cells += [name, _number(probability)]
    return cells + [""] * (2 * top - len(cells))


def _number(probability: float) -> str:
    return f"{probability:.6f}"
