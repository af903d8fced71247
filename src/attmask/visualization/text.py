"""Text that fits: names of any origin in the room they have."""

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


def fitted(text: str, size: Length, room: Length) -> tuple[str, Length]:
    """A text and its size that fit the room, both in pixels: first smaller, then cut in front."""
    shown = one_line(text)
    width = _width(shown) * size
    if width <= room:
        return shown, size
    smaller = max(_SMALLEST, room / width) * size
    if width * smaller / size <= room:
        return shown, smaller
    while shown and _width(f"…{shown}") * smaller > room:
        shown = shown[max(1, len(shown) // 16) :]
    return f"…{shown}", smaller


def drawable(text: str) -> str:
    """The text with a question mark for each character that the font lacks."""
    return "".join(c if _has(c) else "?" for c in text)


def _width(text: str) -> float:
    """The width of a text of size 1."""
    if not text.strip():
        return 0.3 * len(text)
    path = TextPath((0, 0), drawable(text), size=_MEASURED, prop=_font(), usetex=False)
    return float(path.get_extents().x1) / _MEASURED * _HINTED


@cache
def _font() -> FontProperties:
    return FontProperties(family=FAMILY)


@cache
def _has(character: str) -> bool:
    return get_font(fontManager.findfont(_font())).get_char_index(ord(character)) != 0
