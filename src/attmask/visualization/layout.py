"""Sheets drawn with matplotlib: cells pixel by pixel, texts as text, on any number of pages."""

import io
import math
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from attmask import atomic
from attmask.errors import UserError
from attmask.visualization.cells import CELL, Pixels
from attmask.visualization.colours import INK, PAPER, Colour, colours
from attmask.visualization.sheet import Sheet
from attmask.visualization.text import FAMILY, Length, cut, drawable, size_for, width_of

Format = Literal["png", "svg", "pdf"]

_DOTS_PER_INCH = 100
_MARGIN, _GAP, _APART = 16, 8, 28
_TITLE, _LETTERS, _NAME, _CAPTION = 24, 20, 18, 16  # pixels
_LINE, _TITLE_ROOM, _COLUMN_ROOM, _CAPTION_ROOM, _SWATCH = 25, 40, 34, 26, 6
_NAME_ROOM = 240  # pixels left of the rows, at most
_NARROWEST = CELL // 2
_BAR = (16, 14)  # width in pixels, gap to the cells
_BAR_ROOM = 90  # pixels for its numbers


def write_sheet(sheet: Sheet, file: Path, kind: Format = "png") -> Path:
    """Write a sheet atomically; the same sheet gives the same file."""
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    try:
        with (
            rc_context({"svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "attmask"}),
            atomic.file(file) as part,
        ):
            figure = _Drawing(sheet, keeps_all=kind == "svg").figure
            figure.savefig(part, format=kind, dpi=_DOTS_PER_INCH, metadata=metadata[kind])
    except OSError as fault:
        raise UserError(
            f"cannot write {file}: {fault.strerror or fault}; {atomic.what_to_do(fault)}"
        ) from fault
    return file


def picture(sheet: Sheet) -> Image.Image:
    """A sheet as pixels."""
    figure = _Drawing(sheet, keeps_all=False).figure
    memory = io.BytesIO()
    figure.savefig(memory, format="png", dpi=_DOTS_PER_INCH)
    return Image.open(memory).convert("RGB")


class _Drawing:
    """A figure whose coordinates are pixels from the top left corner."""

    def __init__(self, sheet: Sheet, *, keeps_all: bool) -> None:
        self.sheet, self.keeps_all = sheet, keeps_all
        names, below = [row.title for row in sheet.rows], [row.subtitle for row in sheet.rows]
        size = size_for(names, _NAME, _NAME_ROOM)
        self.sizes = size, size_for(below, min(_CAPTION, size), _NAME_ROOM)
        widths = [
            width_of(n, s) for t, s in zip((names, below), self.sizes, strict=True) for n in t
        ]
        self.name_room = min(_NAME_ROOM, math.ceil(max(widths, default=0)))
        self.names = self.name_room + 2 * _GAP if self.name_room else 0
        self.widths = [
            max(_NARROWEST, *(c.pixels.shape[1] for row in sheet.rows if (c := row.cells[i])))
            if any(row.cells[i] for row in sheet.rows)
            else _NARROWEST
            for i in range(len(sheet.columns))
        ]
        self.heights = [
            max(
                _LINE * (bool(row.title) + bool(row.subtitle)),
                *(c.pixels.shape[0] for c in row.cells if c),
            )
            for row in sheet.rows
        ]
        captions = [any(c.caption for c in row.cells if c) for row in sheet.rows]
        self.steps = [
            height + _GAP + (_CAPTION_ROOM if has else 0)
            for height, has in zip(self.heights, captions, strict=True)
        ]
        self.above = [_APART - _GAP if row.is_apart else 0 for row in sheet.rows]
        self.top = _MARGIN + (_TITLE_ROOM if sheet.title else 0) + _COLUMN_ROOM
        cells = sum(self.widths) + _GAP * (len(self.widths) - 1)
        bar = sum(_BAR) + _BAR_ROOM if sheet.bar else 0
        self.width = 2 * _MARGIN + self.names + cells + bar
        self.height = self.top + sum(self.above) + sum(self.steps) - _GAP + _MARGIN
        self.figure = Figure(
            figsize=(self.width / _DOTS_PER_INCH, self.height / _DOTS_PER_INCH),
            dpi=_DOTS_PER_INCH,
            facecolor=_rgb(PAPER),
        )
        self._draw()

    def _draw(self) -> None:
        if self.sheet.title:
            title, room = self.sheet.title, self.width - 2 * _MARGIN
            size = size_for([title], _TITLE, room)
            self._text(title, _MARGIN, _MARGIN + 12, size, room, across="left")
        left = _MARGIN + self.names
        columns = self.sheet.columns
        size = min(
            size_for([column.title], _LETTERS, width)
            for column, width in zip(columns, self.widths, strict=True)
        )
        has_colours = any(column.colour for column in columns)
        middle = self.top - _COLUMN_ROOM / 2 - (_SWATCH / 2 if has_colours else 0)
        for column, width in zip(columns, self.widths, strict=True):
            self._text(column.title, left + width / 2, middle, size, width)
            if column.colour:
                self._box(left, self.top - _SWATCH - 2, width, _SWATCH, column.colour)
            left += width + _GAP
        top = self.top
        for number, (above, step) in enumerate(zip(self.above, self.steps, strict=True)):
            self._row(number, top + above)
            top += above + step
        if self.sheet.bar:
            self._bar(left - _GAP + _BAR[1])

    def _row(self, number: int, top: int) -> None:
        row, height = self.sheet.rows[number], self.heights[number]
        lines = [
            (line, size)
            for line, size in zip((row.title, row.subtitle), self.sizes, strict=True)
            if line
        ]
        for place, (line, size) in enumerate(lines):
            middle = top + height / 2 + (place - (len(lines) - 1) / 2) * _LINE
            self._text(line, _MARGIN, middle, size, self.name_room, across="left")
        left = _MARGIN + self.names
        for cell, width in zip(row.cells, self.widths, strict=True):
            if cell:
                inset = (width - cell.pixels.shape[1]) // 2
                self._image(cell.pixels, left + inset, top)
                middle = top + cell.pixels.shape[0] + _CAPTION_ROOM / 2
                size = size_for([cell.caption], _CAPTION, width)
                self._text(cell.caption, left + width / 2, middle, size, width)
            left += width + _GAP

    def _bar(self, left: int) -> None:
        assert self.sheet.bar
        bar, height = self.sheet.bar, self.heights[0]
        ramp = colours(torch.linspace(1, 0, height)[:, None].expand(-1, _BAR[0]))
        self._image(ramp.numpy(), left, self.top)
        beside = left + _BAR[0] + 6
        for text, y in ((bar.high, 9), (bar.title, height / 2), (bar.low, height - 9)):
            self._text(text, beside, self.top + y, _CAPTION, _BAR_ROOM - 6, across="left")

    def _image(self, pixels: Pixels, left: Length, top: Length) -> None:
        height, width = pixels.shape[:2]
        axes = self.figure.add_axes(
            (
                left / self.width,
                1 - (top + height) / self.height,
                width / self.width,
                height / self.height,
            )
        )
        axes.set_axis_off()
        axes.imshow(np.ascontiguousarray(pixels), interpolation="none", aspect="auto")

    def _box(
        self, left: Length, top: Length, width: Length, height: Length, colour: Colour
    ) -> None:
        corner = (left / self.width, 1 - (top + height) / self.height)
        size = (width / self.width, height / self.height)
        self.figure.add_artist(Rectangle(corner, *size, facecolor=_rgb(colour), linewidth=0))

    def _text(
        self, text: str, x: Length, y: Length, size: Length, room: Length, *, across: str = "center"
    ) -> None:
        if not text:
            return
        shown = cut(text, size, room)
        self.figure.text(
            x / self.width,
            1 - y / self.height,
            shown if self.keeps_all else drawable(shown),
            fontsize=size * 72 / _DOTS_PER_INCH,
            family=FAMILY,
            color=_rgb(INK),
            ha=across,
            va="center",
            parse_math=False,
        )


def _rgb(colour: Colour) -> tuple[float, float, float]:
    red, green, blue = colour
    return red / 255, green / 255, blue / 255
