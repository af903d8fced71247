"""Numbers with their nouns, verbs and units, so that one image is not called "1 images"."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """The number and the noun, in the plural unless there is one: "1 image", "2,000 images"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def agree(count: int, one: str, many: str) -> str:
    """The verb or word that fits the number."""
    return one if count == 1 else many


def either(names: Sequence[str]) -> str:
    """A choice of names: "a", "a or b", "a, b or c"."""
    return " or ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever is readable."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
