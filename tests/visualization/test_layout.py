from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from attmask.errors import UserError
from attmask.visualization.layout import Format, picture, write_sheet
from attmask.visualization.sheet import Cell, ColourBar, Column, Row, Sheet


def pixels(height: int = 90, width: int = 120, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def sheet(*, title: str = "Title", name: str = "a.png") -> Sheet:
    rows = [
        Row([Cell(pixels(seed=0)), Cell(pixels(60, 80, 1), "caption")], name, "network"),
        Row([Cell(pixels(7, 120, seed=2)), None], name, "network", is_apart=True),
    ]
    columns = [Column("image"), Column("head 1", (230, 159, 0))]
    return Sheet(title, columns, rows, ColourBar("cosine", "0", "1"))


def places_of(cell: np.ndarray, page: np.ndarray) -> list[tuple[int, int]]:
    """Where the page has exactly these pixels."""
    height, width = cell.shape[:2]
    first = np.argwhere((page == cell[0, 0]).all(axis=2))
    return [
        (y, x)
        for y, x in first.tolist()
        if np.array_equal(page[y : y + height, x : x + width], cell)
    ]


def test_cells_are_drawn_pixel_by_pixel_beside_each_other() -> None:
    page = np.asarray(picture(sheet()))
    found = [places_of(cell, page) for cell in (pixels(), pixels(60, 80, 1), pixels(7, 120, 2))]
    assert [len(places) for places in found] == [1, 1, 1]
    (top, left), (beside_top, beside_left), (below_top, below_left) = (f[0] for f in found)
    assert top == beside_top
    assert beside_left >= left + 120
    assert below_top >= top + 90
    assert below_left == left


def test_names_of_flat_rows_have_room_for_both_lines() -> None:
    flat = Row([Cell(pixels(7, 120))], "name", "network")
    one, two = (picture(Sheet("", [Column("image")], [flat] * n)).height for n in (1, 2))
    assert two - one >= 50


@pytest.mark.parametrize("kind", get_args(Format))
def test_the_same_sheet_gives_the_same_file(kind: Format, tmp_path: Path) -> None:
    first, second = (write_sheet(sheet(), tmp_path / f"{n}.{kind}", kind) for n in "ab")
    assert first.read_bytes() == second.read_bytes()
    assert sorted(tmp_path.iterdir()) == [first, second]


def test_a_sheet_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UserError, match="cannot write") as fault:
        write_sheet(sheet(), tmp_path / "folder.png")
    assert "\n" not in str(fault.value)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.png"]


def test_text_stays_on_the_paper_of_a_narrow_sheet() -> None:
    plain = np.asarray(picture(sheet(title="", name="a")))
    page = np.asarray(picture(sheet(title="T" * 200, name="n" * 200)))
    border = np.concatenate([page[:, :8].reshape(-1, 3), page[:, -8:].reshape(-1, 3)])
    assert (border == page[0, 0]).all()
    assert page.shape[1] - plain.shape[1] < 240
