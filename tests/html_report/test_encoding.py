"""What the page stores is read back as the same numbers and pictures."""

import base64
import io

import numpy as np
from PIL import Image

from attmask.html_report.encoding import encoded, picture_uri


def test_numbers_are_stored_in_little_endian_whatever_the_machine_has() -> None:
    stored = encoded(np.array([[1.5, -2.0]], dtype=">f8"), "f4")
    assert (stored["dtype"], stored["shape"]) == ("f4", [1, 2])
    assert np.frombuffer(base64.b64decode(stored["data"]), "<f4").tolist() == [1.5, -2.0]


def test_bits_are_packed_over_the_last_axis() -> None:
    mask = np.random.default_rng(0).random((3, 11)) < 0.5
    stored = encoded(mask, "bits")
    packed = np.frombuffer(base64.b64decode(stored["data"]), np.uint8).reshape(3, 2)
    assert np.array_equal(np.unpackbits(packed, axis=-1)[:, :11], mask)


def test_a_picture_needs_no_file() -> None:
    uri = picture_uri(Image.new("RGB", (8, 6), (200, 10, 10)))
    head, _, data = uri.partition(",")
    assert head == "data:image/webp;base64"
    with Image.open(io.BytesIO(base64.b64decode(data))) as picture:
        assert picture.size == (8, 6)
