from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.data.decode import UnreadableImageError, check_readable, decode, decode_or_next
from attmask.data.sources import Source
from attmask.errors import UserError


def picture(width: int = 6, height: int = 4) -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def source_of(root: Path, readable: str) -> Source:
    """One file a letter: `y` is a picture of a colour of its own, `n` is not a picture."""
    for index, letter in enumerate(readable):
        path = root / f"{index:02}.png"
        if letter == "y":
            Image.new("RGB", (2, 2), (index, 0, 0)).save(path)
        else:
            path.write_bytes(b"not a picture")
    return Source(root, tuple(Path(f"{i:02}.png") for i in range(len(readable))))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "LA", "1", "CMYK"])
@pytest.mark.parametrize(("channels", "wanted"), [(3, "RGB"), (1, "L")])
def test_every_mode_becomes_the_mode_of_its_channels(
    tmp_path: Path, mode: str, channels: int, wanted: str
) -> None:
    path = tmp_path / "x.tif"
    picture().convert(mode).save(path)
    image = decode(path, channels)
    assert image.mode == wanted
    assert image.size == (6, 4)


def test_colour_pixels_come_as_they_were_saved(tmp_path: Path) -> None:
    picture().save(tmp_path / "x.png")
    assert np.array_equal(np.asarray(decode(tmp_path / "x.png", 3)), np.asarray(picture()))


def test_a_picture_is_fully_loaded_so_that_its_file_may_go(tmp_path: Path) -> None:
    picture().save(tmp_path / "x.png")
    image = decode(tmp_path / "x.png", 3)
    (tmp_path / "x.png").unlink()
    assert np.array_equal(np.asarray(image), np.asarray(picture()))


@pytest.mark.parametrize(
    ("orientation", "turns", "mirrored"),
    [(1, 0, False), (2, 0, True), (3, 2, False), (6, 3, False), (8, 1, False)],
)
def test_exif_orientation_is_applied(
    tmp_path: Path, orientation: int, turns: int, mirrored: bool
) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture().save(tmp_path / "x.png", exif=exif)
    upright = np.asarray(picture())[:, ::-1] if mirrored else np.asarray(picture())
    assert np.array_equal(np.asarray(decode(tmp_path / "x.png", 3)), np.rot90(upright, turns))


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    pixels = np.array([[0, 256, 32768, 65535]], dtype=np.uint16)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    grey, colour = decode(tmp_path / "x.png", 1), decode(tmp_path / "x.png", 3)
    assert np.asarray(grey).tolist() == [[0, 1, 128, 255]]
    assert np.asarray(colour).tolist() == [[[v, v, v] for v in (0, 1, 128, 255)]]


def test_other_numbers_of_channels_are_refused_as_such(tmp_path: Path) -> None:
    picture().save(tmp_path / "x.png")
    with pytest.raises(UserError, match="4 channels are not supported; use 3 or 1") as error:
        decode(tmp_path / "x.png", 4)
    assert not isinstance(error.value, UnreadableImageError)


def test_an_unreadable_file_is_named_in_one_line(tmp_path: Path) -> None:
    picture(64, 64).save(tmp_path / "cut.png")
    whole = (tmp_path / "cut.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.jpg").touch()
    (tmp_path / "text.jpg").write_text("hello")
    for name in ("cut.png", "empty.jpg", "text.jpg", "missing.jpg"):
        with pytest.raises(UnreadableImageError, match=f"cannot read .*{name}") as error:
            decode(tmp_path / name, 3)
        assert "\n" not in str(error.value)
        assert str(error.value).count(name) == 1


def test_an_unreadable_image_is_replaced_by_the_next_readable_one(tmp_path: Path) -> None:
    source = source_of(tmp_path, "ynnyn")
    image, index, faults = decode_or_next(source, 1, 3)
    assert (index, image.getpixel((0, 0))) == (3, (3, 0, 0))
    assert ["01.png" in str(faults[0]), "02.png" in str(faults[1])] == [True, True]
    assert decode_or_next(source, 4, 3)[1] == 0  # past the end, from the start again
    assert decode_or_next(source, 0, 3)[1:] == (0, ())


def test_sixteen_unreadable_images_in_a_row_end_the_search(tmp_path: Path) -> None:
    source = source_of(tmp_path, "n" * 16 + "y")
    with pytest.raises(UserError, match=r"16 images in a row .*00\.png.*; mend .* the same names$"):
        decode_or_next(source, 0, 3)
    assert decode_or_next(source, 1, 3)[1] == 16


def test_a_source_without_any_readable_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no readable image in .*: tried 3 of 3.*00\.png"):
        check_readable(source_of(tmp_path, "nnn"), 3)


def test_one_readable_image_among_those_tried_is_enough(tmp_path: Path) -> None:
    check_readable(source_of(tmp_path, "n" * 15 + "y"), 3)


def test_the_images_tried_are_spread_over_the_source(tmp_path: Path) -> None:
    check_readable(source_of(tmp_path, "n" * 20 + "y" * 12), 3)
