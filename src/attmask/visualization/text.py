"""Text that fits: names of any origin in the room they have."""

from collections.abc import Iterable
from functools import cache
from typing import TypeAlias

from matplotlib.font_manager import FontProperties, fontManager, get_font
from matplotlib.textpath import TextPath

from attmask.data.decode import one_line

Length: TypeAlias = int | float
"""In pixels."""
FAMILY = "DejaVu Sans"
"""The font that comes with matplotlib."""
_SMALLEST = 0.7  # of the size asked for, before the text is shortened
_HINTED = 1.06  # letters on whole pixels are wider than their outlines
_MEASURED = 100.0
_ROUNDING = 1 + 1e-9


def size_for(texts: Iterable[str], size: Length, room: Length) -> Length:
    """The largest size up to `size` at which all texts fit; not below 0.7 of it."""
    width = max((width_of(text, size) for text in texts), default=0.0)
    return size if width <= room else max(_SMALLEST, room / width) * size


def cut(text: str, size: Length, room: Length) -> str:
    """The text in one line; where it is wider than the room, its middle is left out."""
    whole = shown = one_line(text)
    kept = len(whole)
    while kept and width_of(shown, size) > room * _ROUNDING:
        kept -= max(1, kept // 16)
        shown = f"{whole[: kept // 2]}…{whole[len(whole) - kept + kept // 2 :]}"
    return shown


def width_of(text: str, size: Length) -> float:
    """The width of a text in pixels."""
    return _width(one_line(text)) * size


def drawable(text: str) -> str:
    """The text with a question mark for each character that the font lacks."""
    return "".join(c if _has(c) else "?" for c in text)


def _width(text: str) -> float:
    """The width of a text of size 1."""
    if not text.strip():
        return 0.3 * len(text)
    plain = drawable(text).replace("$", "0")  # as wide, but no sign of a formula
    path = TextPath((0, 0), plain, size=_MEASURED, prop=_font(), usetex=False)
    return float(path.get_extents().x1) / _MEASURED * _HINTED


@cache
def _font() -> FontProperties:
    return FontProperties(family=FAMILY)


@cache
def _has(character: str) -> bool:
    return get_font(fontManager.findfont(_font())).get_char_index(ord(character)) != 0
