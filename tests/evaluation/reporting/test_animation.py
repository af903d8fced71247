from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.reporting.animation import overlay, write_animation


def masks() -> tuple[np.ndarray, np.ndarray]:
    predicted, truth = np.zeros((2, 60, 100), dtype=np.uint8)
    predicted[10:30, 10:30] = 1
    truth[15:40, 40:70] = 1
    return predicted, truth


def test_predicted_objects_are_coloured_and_true_ones_outlined() -> None:
    predicted, truth = masks()
    picture = np.array(overlay(np.full((60, 100, 3), 100, np.uint8), predicted, truth, "ball"))
    assert picture.shape[1] == 100
    assert (picture[50, 90] == 100).all()  # the frame as it is
    red, green, _ = picture[20, 20]
    assert red > 150 > 90 > green
    assert (picture[15, 40:70] == 255).all()
    assert (picture[25, 55] == 100).all()  # inside, a true object that was missed is plain


def test_objects_have_different_colours() -> None:
    predicted, truth = masks()
    predicted[10:30, 60:80] = 2
    picture = np.array(overlay(np.zeros((60, 100, 3), np.uint8), predicted, 0 * truth, ""))
    assert (picture[20, 20] != picture[20, 70]).any()


def test_large_frames_are_shown_smaller() -> None:
    predicted, truth = np.zeros((2, 480, 854), dtype=np.uint8)
    picture = overlay(np.zeros((480, 854, 3), np.uint8), predicted, truth, "")
    assert picture.width == 480


def test_an_animation_has_all_frames_and_starts_again(tmp_path: Path) -> None:
    shades = [Image.new("RGB", (40, 30), (shade, 0, 0)) for shade in (0, 120, 250)]
    with Image.open(write_animation(shades, tmp_path / "a" / "video.webp")) as found:
        assert getattr(found, "n_frames", 1) == 3
        assert found.info["loop"] == 0
        found.seek(2)
        red = np.array(found.convert("RGB"))[..., 0].mean()
    assert red == pytest.approx(250, abs=12)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write the animation"):
        write_animation([Image.new("RGB", (4, 4))], tmp_path / "file" / "video.webp")
