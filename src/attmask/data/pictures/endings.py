"""The file endings of pictures, and the message about files with other endings."""

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec

ENDINGS = (
    *(".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".gif", ".ppm"),
    *(".jfif", ".jpe", ".mpo", ".pgm", ".pbm", ".pnm", ".avif", ".jp2", ".j2k", ".jpf", ".jpx"),
    *(".apng", ".dib"),
)
HEIF_ENDINGS = (".heic", ".heif", ".hif")
INSTALL_HEIF = "pip install 'attmask[heic]'"

_SHOWN = 5  # endings


def can_read_heif() -> bool:
    """Whether pillow-heif is installed."""
    return find_spec("pillow_heif") is not None


@cache
def picture_endings() -> tuple[str, ...]:
    """The endings of the pictures that can be read here, in lower case."""
    return (*ENDINGS, *HEIF_ENDINGS) if can_read_heif() else ENDINGS


def ending_of(name: bytes) -> str:
    """The ending of a file's name in lower case, or `none`."""
    base = name.rpartition(b"/")[2]
    stem, dot, ending = base.rpartition(b".")
    return f".{ending.decode(errors='replace').lower()}" if dot and stem else "none"


def describe_skipped(skipped: Mapping[str, int]) -> str:
    """Describe the skipped files by ending, and how some of them could be read."""
    total = sum(skipped.values())
    often = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{ending} {count:,}" for ending, count in often[:_SHOWN])
    more = ", ..." if len(often) > _SHOWN else ""
    files = "1 file is" if total == 1 else f"{total:,} files are"
    advice = f"; to read {HEIF_ENDINGS[0]}: {INSTALL_HEIF}" if _has_heif(skipped) else ""
    return f"{files} skipped because of the ending: {shown}{more}{advice}"


def _has_heif(skipped: Mapping[str, int]) -> bool:
    return not can_read_heif() and any(ending in HEIF_ENDINGS for ending in skipped)
