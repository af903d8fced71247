"""What a header says is what was written, also where Pillow would show less."""

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from attmask.data.pictures.stored import StoredFormat, stored_format

DEEP = (np.arange(48 * 3, dtype=np.uint16) * 300).reshape(6, 8, 3)


def saved(mode: str, kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), (9, 80, 200)).convert(mode).save(file, kind)
    return file.getvalue()


def encoded(ending: str, pixels: np.ndarray) -> bytes:
    done, data = cv2.imencode(ending, pixels)
    assert done
    return data.tobytes()


@pytest.mark.parametrize(
    ("mode", "kind", "channels", "bits"),
    [
        ("RGB", "JPEG", 3, 8),
        ("L", "JPEG", 1, 8),
        ("CMYK", "JPEG", 3, 8),
        ("RGB", "PNG", 3, 8),
        ("RGBA", "PNG", 3, 8),
        ("LA", "PNG", 1, 8),
        ("P", "PNG", 3, 8),
        ("1", "PNG", 1, 1),
        ("RGB", "WEBP", 3, 8),
        ("L", "BMP", 1, 8),
        ("RGB", "TIFF", 3, 8),
        ("RGBA", "TIFF", 3, 8),
        ("CMYK", "TIFF", 3, 8),
        ("P", "TIFF", 3, 8),
        ("1", "TIFF", 1, 1),
        ("P", "GIF", 3, 8),
    ],
)
def test_format_mode_channels_and_depth_are_those_of_the_file(
    mode: str, kind: str, channels: int, bits: int
) -> None:
    found = stored_format(saved(mode, kind))
    # A palette of few colours needs fewer bits.
    assert (found.format, found.channels) == (kind, channels)
    assert found.mode == mode
    assert found.bits == bits or (mode == "P" and found.bits <= bits)


@pytest.mark.parametrize("ending", [".png", ".tiff"])
def test_deep_colours_and_deep_greys_keep_their_depth(ending: str) -> None:
    kind = "PNG" if ending == ".png" else "TIFF"
    colour, grey = (
        stored_format(encoded(ending, DEEP)),
        stored_format(encoded(ending, DEEP[:, :, 0])),
    )
    assert (colour.format, colour.channels, colour.bits) == (kind, 3, 16)
    assert (grey.format, grey.channels, grey.bits) == (kind, 1, 16)


def test_a_tiff_of_channels_that_pillow_does_not_know_is_read_by_its_tags() -> None:
    # A directory of five channels, as a satellite's picture has it.
    entries = [(256, 3, 1, 4), (257, 3, 1, 2), (258, 3, 1, 8), (262, 3, 1, 1), (277, 3, 1, 5)]
    body = b"".join(
        tag.to_bytes(2, "little")
        + kind.to_bytes(2, "little")
        + count.to_bytes(4, "little")
        + value.to_bytes(4, "little")
        for tag, kind, count, value in entries
    )
    raw = (
        b"II*\0" + (8).to_bytes(4, "little") + len(entries).to_bytes(2, "little") + body + bytes(4)
    )
    assert stored_format(raw) == StoredFormat("TIFF", "5 channels", 5, 8)


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (np.zeros((4, 5), np.uint8), StoredFormat("array", "uint8", 1, 8)),
        (np.zeros((4, 5, 7), np.uint16), StoredFormat("array", "uint16", 7, 16)),
        (np.zeros((4, 5, 3), np.float32), StoredFormat("array", "float32", 3, 32)),
    ],
)
def test_an_array_is_what_it_is(array: np.ndarray, wanted: StoredFormat) -> None:
    assert stored_format(array) == wanted
