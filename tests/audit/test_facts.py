"""The facts of one picture, against what was put into it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.audit.facts import SMALL_SIDE, Looks, PictureFacts, examine
from attmask.data.config import DataConfig
from attmask.data.source import Raw, everything
from attmask.data.sources import open_images
from attmask.data.stores.files import Files
from tests.audit.pictures import colours, write, write_deep


@dataclass(frozen=True)
class Counting:
    """A store of one picture that counts how often it is read."""

    raw: Raw
    reads: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return 1

    def name(self, row: int) -> str:
        return "one"

    def read(self, row: int) -> Raw:
        self.reads.append(row)
        return self.raw

    @property
    def shards(self) -> Sequence[int]:
        return ()


def only(folder: Path) -> PictureFacts:
    return examine(open_images(folder).train, 0, DataConfig())


def looks(raw: Raw) -> Looks:
    found = examine(everything(Path("here"), Counting(raw)), 0, DataConfig()).looks
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["a.png", "a.jpg"])
def test_size_kind_and_values_are_those_of_the_picture(tmp_path: Path, name: str) -> None:
    pixels = np.repeat(np.repeat(colours(0, 32), 10, axis=0), 20, axis=1)
    write(tmp_path / name, pixels)
    found = only(tmp_path)
    assert found.place == str(tmp_path / name)
    assert found.looks is not None
    assert (found.looks.width, found.looks.height) == (640, 320)
    assert found.looks.stored.channels == 3
    flat = pixels.reshape(-1, 3) / 255
    assert np.allclose(found.looks.mean, flat.mean(axis=0), atol=0.005)
    assert np.allclose(found.looks.mean_square, (flat**2).mean(axis=0), atol=0.004)
    assert not found.looks.colourless
    assert found.looks.speed is None


def test_a_file_is_read_once_even_when_its_decoding_is_timed() -> None:
    store = Counting(colours(0, 300))
    found = examine(everything(Path("here"), store), 0, DataConfig(), timed=True)
    assert store.reads == [0]
    assert found.looks is not None
    assert found.looks.speed is not None
    assert found.looks.speed.full_seconds >= 0


def test_size_is_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(colours(0)[:, :32]).save(tmp_path / "a.jpg", exif=exif)
    found = only(tmp_path).looks
    assert found is not None
    assert (found.width, found.height) == (64, 32)


def test_grey_stored_as_colour_is_colourless_and_one_red_corner_is_not() -> None:
    grey = np.repeat(colours(0)[:, :, :1], 3, axis=2)
    red = grey.copy()
    red[:20, :20] = (255, 0, 0)
    assert looks(grey).colourless
    assert looks(grey[:, :, 0]).colourless
    assert not looks(red).colourless


@pytest.mark.parametrize("channels", [1, 2, 5, 13])
def test_any_number_of_channels_is_measured_channel_by_channel(channels: int) -> None:
    values = np.linspace(10, 240, channels).astype(np.uint8)
    pixels = np.broadcast_to(values, (2 * SMALL_SIDE, 300, channels)).copy()
    found = looks(pixels)
    assert np.allclose(found.mean, values / 255, atol=1e-6)
    assert np.allclose(found.mean_square, (values / 255) ** 2, atol=1e-6)


def test_sixteen_bits_are_told_and_scaled(tmp_path: Path) -> None:
    write_deep(tmp_path / "a.png", colours(0).astype(np.uint16) * 257)
    found = only(tmp_path).looks
    assert found is not None
    assert found.stored.bits == 16
    assert np.allclose(found.mean, colours(0).mean(axis=(0, 1)) / 255, atol=0.02)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9000), (9000, 1), (2, 3)])
def test_strange_shapes_are_examined_like_others(shape: tuple[int, int]) -> None:
    found = looks(np.full((*shape, 3), 100, dtype=np.uint8))
    assert (found.height, found.width) == shape
    assert found.hash is None
    assert np.allclose(found.mean, 100 / 255, atol=1e-6)


@pytest.mark.parametrize(
    "data", [b"", b"no picture", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0 cut"]
)
def test_what_cannot_be_read_has_a_reason_and_no_looks(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.jpg").write_bytes(data)
    found = only(tmp_path)
    assert found.looks is None
    assert found.fault
    assert "a.jpg" not in found.fault


def test_a_file_that_has_gone_is_unreadable(tmp_path: Path) -> None:
    write(tmp_path / "a.png", colours(0))
    source = open_images(tmp_path).train
    (tmp_path / "a.png").unlink()
    found = examine(source, 0, DataConfig())
    assert (found.digest, found.looks) == (None, None)
    assert found.fault == "No such file or directory"


def test_a_name_that_no_file_can_have_is_a_fault_of_the_picture() -> None:
    found = examine(everything(Path("here"), Files(Path("here"), ["a\0b.jpg"])), 0, DataConfig())
    assert found.fault == "embedded null byte"
    assert found.looks is None
