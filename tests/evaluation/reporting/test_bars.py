from pathlib import Path

import pytest
from PIL import Image

from attmask.evaluation.reporting.bars import draw_bars


def size(groups: int, networks: int, file: Path) -> tuple[int, int]:
    names = [f"class {number}" for number in range(groups)]
    series = {f"network {n}": [50.0, None] * (groups // 2) for n in range(networks)}
    draw_bars(names, series, file, title="IoU", across="per cent")
    with Image.open(file) as picture:
        return picture.size


def test_the_picture_grows_with_classes_and_networks_up_to_what_can_be_read(tmp_path: Path) -> None:
    small = size(4, 1, tmp_path / "a.png")
    assert size(8, 1, tmp_path / "b.png")[1] > small[1]
    assert size(4, 3, tmp_path / "c.png")[1] > small[1]
    assert size(60, 1, tmp_path / "d.png") == size(150, 1, tmp_path / "e.png")


def test_nothing_to_draw_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no values to plot"):
        draw_bars([], {}, tmp_path / "x.png", title="", across="")
