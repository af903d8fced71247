import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from attmask.visualization.text import FAMILY, cut, drawable, size_for, width_of

_FIGURE = Figure(dpi=100)
FigureCanvasAgg(_FIGURE)


def drawn_width(text: str, size: float) -> float:
    """The width in pixels as matplotlib draws it."""
    shown = _FIGURE.text(
        0, 0, drawable(text), fontsize=size * 72 / 100, family=FAMILY, parse_math=False
    )
    width = shown.get_window_extent().width
    shown.remove()
    return float(width)


@pytest.mark.parametrize("room", [60, 224])
@pytest.mark.parametrize(
    "name",
    [
        "flower.jpg",
        "W" * 250,
        "i" * 250,
        "$x_1$ and $\\frac{a}{b}$ $$$$$$$$$$",
        "工 日本語 עברית.png",
        "line\nbreak \u202e.png",
        "train/n01440764/ILSVRC2012_val_00009111.JPEG",
    ],
)
def test_a_name_is_drawn_within_its_room(name: str, room: int) -> None:
    size = size_for([name], 18, room)
    assert drawn_width(cut(name, size, room), size) <= room + 1


@given(st.text(max_size=60), st.integers(20, 300))
def test_any_text_is_measured_within_its_room(text: str, room: int) -> None:
    size = size_for([text], 16, room)
    assert 0.7 * 16 <= size <= 16
    assert width_of(cut(text, size, room), size) <= room


def test_a_cut_name_keeps_both_ends_and_a_short_one_all() -> None:
    assert cut("flower.jpg", 16, 200) == "flower.jpg"
    short = cut("begin" + "x" * 100 + "end.png", 16, 150)
    assert short.startswith("begin")
    assert short.endswith("end.png")
    assert "…" in short


def test_texts_that_stand_together_have_the_size_of_the_longest() -> None:
    names = ["a", "a name that needs a smaller size"]
    assert size_for(names, 18, 250) == size_for(names[1:], 18, 250) < 18
    assert size_for([], 18, 250) == 18
