"""Pictures of every ending are found and read; other files are counted and said."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.pictures.endings import describe_skipped, ending_of
from attmask.data.sources import open_images
from tests.data.strange import scene
from tests.sources import write_tar

SCENE = scene(64, 48)
FORMATS = {
    ".jfif": "jpeg",
    ".jpe": "jpeg",
    ".JPEG": "jpeg",
    ".pgm": "ppm",
    ".pnm": "ppm",
    ".jp2": "jpeg2000",
    ".j2k": "jpeg2000",
    ".avif": "avif",
    ".dib": "dib",
}


def encoded(kind: str, grey: bool = False) -> bytes:
    written = io.BytesIO()
    picture = Image.fromarray(SCENE)
    (picture.convert("L") if grey else picture).save(written, kind)
    return written.getvalue()


def apart(pixels: np.ndarray, wanted: np.ndarray) -> float:
    assert pixels.shape == wanted.shape
    return float(np.abs(pixels.astype(int) - wanted).mean())


@pytest.mark.parametrize("ending", FORMATS)
@pytest.mark.parametrize("packed", [False, True])
def test_pictures_of_less_usual_endings_are_found_and_read(
    tmp_path: Path, ending: str, packed: bool
) -> None:
    grey = ending == ".pgm"
    data = encoded(FORMATS[ending], grey)
    if packed:
        found = open_images(write_tar(tmp_path / "a.tar", {f"1{ending}": data}))
    else:
        (tmp_path / f"1{ending}").write_bytes(data)
        found = open_images(tmp_path)
    assert len(found.train) == 1
    assert not found.skipped
    wanted = np.asarray(Image.fromarray(SCENE).convert("L").convert("RGB")) if grey else SCENE
    assert apart(decode(found.train, 0, DataConfig()), wanted) < 6


def test_other_files_are_described_by_their_endings_the_most_frequent_first() -> None:
    assert describe_skipped({".txt": 1}) == "1 file is skipped because of the ending: .txt 1"
    many = {f".{i}": i for i in range(1, 8)}
    assert describe_skipped({**many, "none": 1200}) == (
        "1,228 files are skipped because of the ending: none 1,200, .7 7, .6 6, .5 5, .4 4, ..."
    )


@pytest.mark.parametrize(
    ("name", "ending"),
    [(b"a/b.TXT", ".txt"), (b"a.b/c", "none"), (b".hidden", "none"), (b"x.\xff", ".\ufffd")],
)
def test_the_ending_is_that_of_the_files_own_name(name: bytes, ending: str) -> None:
    assert ending_of(name) == ending
