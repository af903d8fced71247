"""Text that fits: names of any origin in the room they have."""

from collections.abc import Iterable
from functools import cache
from typing import TypeAlias

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, fontManager, get_font

from attmask.data.decode import one_line

Length: TypeAlias = int | float
"""In pixels."""
FAMILY = "DejaVu Sans"
"""The font that comes with matplotlib."""
_SMALLEST = 0.7  # of the size asked for, before the text is shortened


def size_for(texts: Iterable[str], size: Length, room: Length) -> Length:
    """The largest size up to `size` at which all texts fit; not below 0.7 of it."""
    shown, smallest = list(texts), _SMALLEST * size
    width = max((width_of(text, size) for text in shown), default=0.0)
    while width > room and size > smallest:
        size = max(smallest, min(0.99, room / width) * size)
        width = max(width_of(text, size) for text in shown)
    return size


def cut(text: str, size: Length, room: Length) -> str:
    """The text in one line; where it is wider than the room, its middle is left out."""
    whole = shown = one_line(text)
    kept = len(whole)
    while kept and width_of(shown, size) > room:
        kept -= max(1, kept // 16)
        shown = f"{whole[: kept // 2]}…{whole[len(whole) - kept + kept // 2 :]}"
    return shown


def width_of(text: str, size: Length) -> float:
    """The width of a text in pixels, with its letters on whole pixels as in a PNG."""
    shown = _figure().text(
        0, 0, drawable(one_line(text)), fontsize=size, family=FAMILY, parse_math=False
    )
    width = float(shown.get_window_extent().width)
    shown.remove()
    return width


def drawable(text: str) -> str:
    """The text with a question mark for each character that the font lacks."""
    return "".join(c if _has(c) else "?" for c in text)


@cache
def _figure() -> Figure:
    """A figure to measure in, of which a point is a pixel."""
    figure = Figure(dpi=72)
    FigureCanvasAgg(figure)
    return figure


@cache
def _font() -> FontProperties:
    return FontProperties(family=FAMILY)


@cache
def _has(character: str) -> bool:
    return get_font(fontManager.findfont(_font())).get_char_index(ord(character)) != 0
