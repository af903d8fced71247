import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.reporting.confusion import Confusion, draw_confusions

INK, DARKEST = (40, 40, 44), (36, 16, 54)


def confused(classes: int, seed: int = 0) -> Confusion:
    draw = np.random.default_rng(seed)
    images = np.diag(np.full(classes, 30)) + draw.integers(0, 2, (classes, classes))
    return Confusion("runs/mine", [f"a class $_{c}" for c in range(classes)], images)


def drawn(file: Path, *matrices: Confusion) -> np.ndarray:
    draw_confusions(matrices, file)
    return np.asarray(Image.open(file).convert("RGB")).astype(int)


def near(pixels: np.ndarray, colour: tuple[int, int, int]) -> np.ndarray:
    found: np.ndarray = np.argwhere(np.abs(pixels - np.array(colour)).sum(axis=2) < 12)
    return found


def test_each_row_is_shown_in_per_cent_of_its_own_images() -> None:
    shares = Confusion("a", ["x", "y"], np.array([[3, 1], [0, 0]])).per_cent
    assert shares.tolist() == [[75, 25], [0, 0]]


def test_classes_that_no_image_has_and_none_was_taken_for_are_not_shown() -> None:
    images = np.array([[2, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]])
    used = Confusion("a", ["w", "x", "y", "z"], images).used()
    assert used.classes == ["w", "y", "z"]
    assert used.images.tolist() == [[2, 1, 0], [0, 0, 0], [0, 0, 1]]


def test_the_diagonal_runs_down_from_the_upper_left(tmp_path: Path) -> None:
    right = drawn(tmp_path / "right.png", Confusion("a", list("abcd"), np.eye(4, dtype=np.int64)))
    dark = near(right, DARKEST)
    assert np.corrcoef(dark[:, 0], dark[:, 1])[0, 1] > 0.7
    # The first class is always taken for the third: row 0, column 2.
    images = np.zeros((3, 3), dtype=np.int64)
    images[0, 2] = images[1, 1] = images[2, 0] = 5
    wrong = near(drawn(tmp_path / "wrong.png", Confusion("a", list("abc"), images)), DARKEST)
    assert np.corrcoef(wrong[:, 0], wrong[:, 1])[0, 1] < -0.7


@pytest.mark.parametrize("classes", [1, 2, 10, 37])
def test_nothing_is_drawn_over_the_edge(tmp_path: Path, classes: int) -> None:
    pixels = drawn(tmp_path / "plots" / "a.png", confused(classes))
    edge = np.concatenate([pixels[:6].reshape(-1, 3), pixels[:, :6].reshape(-1, 3)])
    edge = np.concatenate([edge, pixels[-6:].reshape(-1, 3), pixels[:, -6:].reshape(-1, 3)])
    assert (np.abs(edge - np.array([250, 250, 248])).sum(axis=1) < 6).all()
    assert len(near(pixels, INK)) > 200
    assert [file.name for file in (tmp_path / "plots").iterdir()] == ["a.png"]


@pytest.mark.slow
def test_a_large_picture_grows_with_its_classes_up_to_a_size_that_opens_anywhere(
    tmp_path: Path,
) -> None:
    sides = [max(drawn(tmp_path / "a.png", confused(n)).shape) for n in (41, 200, 1000)]
    assert sides[0] < sides[1] < 4500
    assert sides[2] < 4500
    assert sides[1] / 200 > 14, "pixels of a row that carries a name"


def test_the_shades_only_become_darker_so_that_grey_tells_the_same() -> None:
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    from attmask.evaluation.reporting import confusion as module

    shades = LinearSegmentedColormap.from_list("a", [to_rgb(c) for c in module._SHADES])
    linear = np.array([shades(i / 255)[:3] for i in range(256)]) ** 2.2
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    assert (np.diff(luminance) < 0).all()


def test_several_networks_stand_side_by_side(tmp_path: Path) -> None:
    one = drawn(tmp_path / "one.png", confused(4))
    two = drawn(tmp_path / "two.png", confused(4), confused(4, seed=1))
    assert two.shape[1] > 1.5 * one.shape[1]
    assert abs(two.shape[0] - one.shape[0]) < 10
    assert len(near(two, DARKEST)) > 1.5 * len(near(one, DARKEST))


def test_no_images_is_a_fault_of_ours(tmp_path: Path) -> None:
    empty = Confusion("a", ["x"], np.zeros((1, 1), dtype=np.int64))
    for matrices in ([], [empty]):
        with pytest.raises(ValueError, match="no images"):
            draw_confusions(matrices, tmp_path / "a.png")


def test_a_missing_library_and_a_bad_folder_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UserError, match="cannot write the plot"):
        drawn(tmp_path / "taken" / "a.png", confused(2))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="pip install matplotlib"):
        drawn(tmp_path / "a.png", confused(2))
