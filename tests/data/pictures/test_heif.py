"""HEIC photographs, with the library that reads them and without it."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pillow_heif
from PIL import Image

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.sources import open_images
from tests.data.strange import scene
from tests.runs import environment
from tests.sources import names, png

SCENE = scene(64, 48)


def heic(turn: int = 1) -> bytes:
    written, exif = io.BytesIO(), Image.Exif()
    exif[274] = turn
    pillow_heif.from_pillow(Image.fromarray(SCENE)).save(written, quality=95, exif=exif.tobytes())
    return written.getvalue()


def apart(pixels: np.ndarray, wanted: np.ndarray) -> float:
    assert pixels.shape == wanted.shape
    return float(np.abs(pixels.astype(int) - wanted).mean())


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
    (tmp_path / "1.png").write_bytes(png(1))
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
from attmask.data.config import DataConfig
from attmask.data.sources import open_images
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
    passed = "3 files are skipped because of the ending: .heic 2, .txt 1"
    assert counted == f"1 {passed}; {how}"
    assert "found 1 files with endings .heic" in alone
    assert alone.endswith(how)
    assert "2.heic: it is a HEIC picture; to read it: pip install 'attmask[heic]'" in listed
