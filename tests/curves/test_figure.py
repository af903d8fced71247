from pathlib import Path

import numpy as np
import pytest

from attmask.curves.figure import Panel, check_format, draw_panels, shortened, thinned
from attmask.curves.groups import Band
from attmask.errors import UserError


def band(values: list[float]) -> Band:
    numbers = np.array(values, dtype=float)
    return Band(np.arange(len(numbers), dtype=float), numbers, numbers - 1, numbers + 1)


def test_an_svg_has_the_names_as_text_and_hostile_ones_are_harmless(tmp_path: Path) -> None:
    names = ["<script>$x$", "b" * 200, "line\nbreak"]
    panel = Panel("loss $\\frac{$", {name: band([3, 2, 1]) for name in names}, {"raw pixels": 2.0})
    file = draw_panels([panel] * 5, names, tmp_path / "a.svg", across="epoch")
    text = file.read_text()
    assert "<script>" not in text
    assert text.startswith("<?xml")


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_every_format_is_written(ending: str, tmp_path: Path) -> None:
    file = draw_panels(
        [Panel("a", {"x": band([1])}, {})], ["x"], tmp_path / f"a.{ending}", across=""
    )
    assert file.stat().st_size > 1000


def test_another_ending_is_refused() -> None:
    with pytest.raises(UserError, match=r"\.png, \.svg or \.pdf"):
        check_format(Path("a.gif"))


def test_thinning_keeps_the_extremes_and_both_ends() -> None:
    values = np.sin(np.linspace(0, 50, 5000))
    values[1234], values[4321] = 9.0, -9.0
    kept = thinned(values, 600)
    assert len(kept) <= 602
    assert {0, 1234, 4321, 4999} <= set(kept.tolist())
    assert np.all(np.diff(kept) > 0)
    assert thinned(values[:10]).tolist() == list(range(10))


def test_long_names_keep_both_ends() -> None:
    short = shortened("begin" + "x" * 100 + "end")
    assert short.startswith("begin")
    assert short.endswith("end")
    assert len(short) <= 44
