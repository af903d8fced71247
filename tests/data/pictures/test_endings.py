"""Pictures of every ending are found and read; other files are counted and said."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pillow_heif
import pytest
from PIL import Image

from attmask.data.decode import decode
from attmask.data.pictures.endings import describe_skipped, ending_of
from attmask.data.sources import DataConfig, open_images
from tests.data.strange import scene
from tests.runs import environment
from tests.sources import names, write_tar

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


def heic(turn: int = 1) -> bytes:
    written, exif = io.BytesIO(), Image.Exif()
    exif[274] = turn
    pillow_heif.from_pillow(Image.fromarray(SCENE)).save(written, quality=95, exif=exif.tobytes())
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


def test_heic_pictures_are_read_upright_where_the_library_is_installed(tmp_path: Path) -> None:
    (tmp_path / "a.HEIC").write_bytes(heic())
    (tmp_path / "b.heif").write_bytes(heic(turn=6))
    source = open_images(tmp_path).train
    assert names(source) == ["a.HEIC", "b.heif"]
    assert apart(decode(source, 0, DataConfig()), SCENE) < 6
    turned = np.ascontiguousarray(np.rot90(SCENE, k=-1))
    assert apart(decode(source, 1, DataConfig()), turned) < 6


def test_without_the_library_heic_pictures_are_counted_with_how_to_read_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "1.jpg").write_bytes(encoded("jpeg"))
    (tmp_path / "2.heic").write_bytes(heic())
    (tmp_path / "list.txt").write_text("2.heic\n")
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "3.heic").write_bytes(heic())
    script = """
import importlib.util, sys
from pathlib import Path
known = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "pillow_heif" else known(name, *more)
from attmask.data.decode import decode
from attmask.data.pictures.endings import describe_skipped
from attmask.data.sources import DataConfig, open_images
from attmask.errors import UserError
root = Path(sys.argv[1])
found = open_images(root)
print(len(found.train), describe_skipped(found.skipped))
for place in (root / "only", root / "list.txt"):
    try:
        decode(open_images(place).train, 0, DataConfig())
    except UserError as error:
        print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    counted, alone, listed = done.stdout.splitlines()
    how = "to read .heic: pip install 'attmask[heic]'"
    passed = "3 files are passed over because of the ending: .heic 2, .txt 1"
    assert counted == f"1 {passed}; {how}"
    assert "found 1 files with endings .heic" in alone
    assert alone.endswith(how)
    assert "2.heic: it is a HEIC picture; to read it: pip install 'attmask[heic]'" in listed


def test_other_files_are_described_by_their_endings_the_most_frequent_first() -> None:
    assert describe_skipped({".txt": 1}) == "1 file is passed over because of the ending: .txt 1"
    many = {f".{i}": i for i in range(1, 8)}
    assert describe_skipped({**many, "none": 1200}) == (
        "1,228 files are passed over because of the ending: none 1,200, .7 7, .6 6, .5 5, .4 4, ..."
    )


@pytest.mark.parametrize(
    ("name", "ending"),
    [(b"a/b.TXT", ".txt"), (b"a.b/c", "none"), (b".hidden", "none"), (b"x.\xff", ".\ufffd")],
)
def test_the_ending_is_that_of_the_files_own_name(name: bytes, ending: str) -> None:
    assert ending_of(name) == ending
