import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.reporting.plot import Curve, draw_curves, moved_apart

FALLING: Curve = [(0.0, 70.0), (0.3, 50.0), (0.7, 10.0)]
LOW: Curve = [(0.0, 9.0), (0.3, 8.0), (0.7, 5.0)]


def drawn(file: Path, **curves: Curve) -> np.ndarray:
    draw_curves(curves, file, title="Accuracy", across="share", up="top-1")
    return np.asarray(Image.open(file).convert("RGB")).astype(int)


def near(pixels: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    """Rows and columns of the pixels of a colour."""
    found: np.ndarray = np.argwhere(np.abs(pixels - np.array(colour)).sum(axis=2) < 12)
    return found


def test_each_curve_is_drawn_in_a_colour_of_its_own_where_its_points_are(tmp_path: Path) -> None:
    pixels = drawn(tmp_path / "plots" / "two.png", high=FALLING, low=LOW)
    rose, blue = near(pixels, (211, 39, 91)), near(pixels, (0, 114, 178))
    assert len(rose) > 1000
    assert len(blue) > 1000
    left_rose, left_blue = (each[each[:, 1] < 300][:, 0].mean() for each in (rose, blue))
    assert left_rose < left_blue  # the higher curve is higher on the sheet
    first, last = (rose[rose[:, 1] < 300], rose[rose[:, 1] > rose[:, 1].max() - 500])
    assert first[:, 0].mean() < last[:, 0].mean()  # and it falls
    assert [file.name for file in (tmp_path / "plots").iterdir()] == ["two.png"]


def test_nothing_is_drawn_over_the_edge(tmp_path: Path) -> None:
    many = {f"runs/2026-11-02/a long name of a run {i}": FALLING for i in range(9)}
    pixels = drawn(tmp_path / "many.png", **many)
    edge = np.concatenate([pixels[:6].reshape(-1, 3), pixels[:, :6].reshape(-1, 3)])
    edge = np.concatenate([edge, pixels[-6:].reshape(-1, 3), pixels[:, -6:].reshape(-1, 3)])
    assert (np.abs(edge - np.array([250, 250, 248])).sum(axis=1) < 6).all()


@pytest.mark.parametrize(
    "points", [[(0.3, 50.0)], [(0.0, 0.0), (0.5, 0.0)], [(i / 30, 50.0) for i in range(31)]]
)
def test_one_point_no_success_and_many_ratios_are_drawn_too(points: Curve, tmp_path: Path) -> None:
    assert len(near(drawn(tmp_path / "x.png", **{"a $b_c": points}), (211, 39, 91))) > 20


def test_a_plot_without_points_is_a_fault_of_ours(tmp_path: Path) -> None:
    none: list[dict[str, Curve]] = [{}, {"a": []}]
    for curves in none:
        with pytest.raises(ValueError, match="no points to plot"):
            drawn(tmp_path / "x.png", **curves)


@given(
    heights=st.lists(st.floats(0, 1), min_size=1, max_size=8).map(sorted),
    apart=st.floats(0, 0.2),
)
def test_names_are_apart_and_in_the_order_of_their_curves(
    heights: list[float], apart: float
) -> None:
    moved = moved_apart(heights, apart)
    gaps = np.diff(moved)
    assert (gaps >= apart - 1e-9).all()
    assert np.mean(moved) == pytest.approx(np.mean(heights), abs=1e-9)
    if (np.diff(heights) >= apart).all():
        assert moved == pytest.approx(heights)


def test_a_plot_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the plot"):
        drawn(tmp_path / "file" / "x.png", a=FALLING)


def test_without_matplotlib_an_error_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="pip install matplotlib"):
        drawn(tmp_path / "x.png", a=FALLING)
