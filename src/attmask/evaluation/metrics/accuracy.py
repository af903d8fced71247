"""Top-1 and top-5 accuracy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Accuracy:
    """The share of images whose class is ranked first, or among the first five, in per cent."""

    top1: float
    top5: float
