"""A sheet: rows of cells under column titles, and which rows share a page."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attmask.visualization.cells import Pixels
from attmask.visualization.colours import Colour


@dataclass(frozen=True, eq=False)
class Cell:
    """A picture with a line of text below it."""

    pixels: Pixels
    caption: str = ""


@dataclass(frozen=True, eq=False)
class Row:
    """Cells from left to right, None where there is none, with up to two lines to their left."""

    cells: Sequence[Cell | None]
    title: str = ""
    subtitle: str = ""
    is_apart: bool = False
    """Whether more room is left above it, because a group of rows begins."""


@dataclass(frozen=True)
class Column:
    """The title of a column, and the colour that stands for it in other cells."""

    title: str
    colour: Colour | None = None


@dataclass(frozen=True)
class ColourBar:
    """The scale of the colour map: what it shows, and its values at both ends."""

    title: str
    low: str
    high: str


@dataclass(frozen=True, eq=False)
class Sheet:
    """Everything on one page."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    bar: ColourBar | None = None


def pages(sheet: Sheet, groups: Sequence[Sequence[Row]], max_rows: int) -> list[Sheet]:
    """Groups of rows on pages of at most `max_rows` rows; a group is never torn apart."""
    made: list[list[Row]] = []
    for group in groups:
        if made and len(made[-1]) + len(group) <= max_rows:
            first, *others = group
            made[-1] += [replace(first, is_apart=len(group) > 1), *others]
        else:
            made.append(list(group))
    return [replace(sheet, rows=rows) for rows in made]
