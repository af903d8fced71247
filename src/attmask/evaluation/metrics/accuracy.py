"""How often a class is right: the first answer, or one of the first five."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Accuracy:
    """Per cent of images whose class is the first, or among the first five, of the answers."""

    top1: float
    top5: float
