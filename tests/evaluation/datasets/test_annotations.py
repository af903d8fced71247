import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.annotations import Annotations, Mask, as_palette_image, palette
from tests.evaluation.videos import write_mask

TWO = np.array([[0, 1, 1], [2, 2, 0]], dtype=np.uint8)


def written(tmp_path: Path, values: np.ndarray, *, binary: bool = False) -> Mask:
    write_mask(tmp_path / "00000.png", values.astype(np.uint8), binary=binary)
    return Mask.read(tmp_path / "00000.png")


def write_png(file: Path, values: np.ndarray, colours: int) -> None:
    """A palette PNG by hand, because Pillow adds the colours that are missing."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    height, width = values.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    lines = b"".join(b"\0" + row.tobytes() for row in values)
    parts = [(b"IHDR", header), (b"PLTE", bytes(3 * colours)), (b"IDAT", zlib.compress(lines))]
    chunks = b"".join(chunk(*part) for part in (*parts, (b"IEND", b"")))
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


def test_the_palette_is_that_of_davis() -> None:
    colours = np.array(palette()).reshape(-1, 3).tolist()
    assert colours[:5] == [[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0], [0, 0, 128]]
    assert colours[8] == [64, 0, 0]
    assert colours[255] == [224, 224, 192]


def test_objects_are_the_numbers_of_a_palette_png(tmp_path: Path) -> None:
    mask = written(tmp_path, 3 * TWO)
    assert mask.objects() == (3, 6)
    assert (mask.classes((3, 6)) == TWO).all()


def test_a_mask_of_0_and_255_is_one_object(tmp_path: Path) -> None:
    mask = written(tmp_path, 255 * (TWO > 0), binary=True)
    assert mask.objects() == (255,)
    assert (mask.classes((255,)) == (TWO > 0)).all()


def test_grey_values_that_count_from_one_are_objects(tmp_path: Path) -> None:
    assert written(tmp_path, TWO, binary=True).objects() == (1, 2)


def test_void_pixels_and_objects_that_appear_later_are_background(tmp_path: Path) -> None:
    mask = written(tmp_path, np.array([[0, 1, 255], [4, 1, 0]]))
    assert mask.classes((1,)).tolist() == [[0, 1, 0], [0, 1, 0]]
    assert mask.objects() == (1, 4)


def test_a_predicted_mask_is_read_back_as_it_was(tmp_path: Path) -> None:
    as_palette_image(TWO, (3, 6)).save(tmp_path / "predicted.png")
    mask = Mask.read(tmp_path / "predicted.png")
    assert (mask.values == 3 * TWO).all()
    assert mask.has_palette


def test_a_value_outside_of_the_palette_is_named(tmp_path: Path) -> None:
    write_png(tmp_path / "00000.png", TWO, colours=2)
    with pytest.raises(UserError, match="has the value 2, but its palette has only 2 colours"):
        Mask.read(tmp_path / "00000.png")


def test_grey_values_that_are_no_objects_are_named(tmp_path: Path) -> None:
    soft = np.array([[0, 12, 255], [130, 255, 7]])
    with pytest.raises(UserError, match="has the values 7, 12, 130, 255, which are no objects"):
        written(tmp_path, soft, binary=True).objects()
    with pytest.raises(UserError, match="has the values 7, 12, 130, which are no objects"):
        written(tmp_path, soft, binary=True).classes((255,))


def test_a_first_mask_without_an_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no object; the first frame of a sequence needs one"):
        written(tmp_path, np.zeros((2, 3))).objects()


def test_a_file_that_is_no_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "00000.png").write_bytes(b"not a picture")
    with pytest.raises(UserError, match=r"cannot read the mask .*00000\.png"):
        Mask.read(tmp_path / "00000.png")


def test_a_mask_must_have_the_size_of_its_frame(tmp_path: Path) -> None:
    write_mask(tmp_path / "00000.png", TWO)
    read = Annotations([tmp_path / "00000.png"], [(1, 2)])
    assert read(np.zeros((2, 3, 3), dtype=np.uint8), 0).tolist() == TWO.tolist()
    with pytest.raises(UserError, match="has 3 x 2 pixels, but its frame has 5 x 4"):
        read(np.zeros((4, 5, 3), dtype=np.uint8), 0)
