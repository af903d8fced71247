"""Flipped and cropped copies are found among pictures that are not copies, and said to be such."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from attmask.audit.duplicates import Leak
from attmask.audit.inspect import inspect_images
from tests.audit.pictures import natural, write
from tests.real_data import FOLDER, needs


def cut(image: Image.Image, left: float, top: float, right: float, bottom: float) -> Image.Image:
    """Without these shares of the sides."""
    width, height = image.size
    return image.crop(
        (
            round(left * width),
            round(top * height),
            width - round(right * width),
            height - round(bottom * height),
        )
    )


def saved(image: Image.Image, scale: float = 1.0) -> np.ndarray:
    """Scaled and saved again with losses."""
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    file = io.BytesIO()
    image.resize(size, Image.Resampling.BICUBIC).save(file, "JPEG", quality=85)
    return np.asarray(Image.open(file))


def copies(image: Image.Image) -> Iterator[tuple[str, np.ndarray]]:
    """Changed copies, and what an audit should say of each."""
    flipped = ImageOps.mirror(image)
    yield "flipped", np.asarray(flipped)
    yield "flipped", saved(flipped, 0.6)
    yield "cropped", saved(cut(image, 0.06, 0.04, 0, 0))
    yield "cropped", saved(cut(image, 0.1, 0, 0.1, 0.1), 1.3)
    yield "cropped", saved(cut(image, 0, 0.15, 0.15, 0), 0.7)
    yield "flipped and cropped", saved(cut(flipped, 0.1, 0, 0, 0.1))


def test_inspect_finds_flipped_and_cropped_copies_and_says_which_they_are(tmp_path: Path) -> None:
    wanted = {}
    for index in range(12):
        pair = tmp_path / f"{index:02}" / "a.png", tmp_path / f"{index:02}" / "b.png"
        how, pixels = list(copies(Image.fromarray(natural(index))))[index % 6]
        write(pair[0], natural(index))
        write(pair[1], pixels)
        wanted[str(pair[0]), str(pair[1])] = (how,)
    for index in range(12, 60):
        write(tmp_path / "others" / f"{index}.png", natural(index))
    found = inspect_images(tmp_path, workers=0, measure=False).duplicates
    assert dict(zip(found.near, found.near_how, strict=True)) == wanted
    assert found.near_surplus == 12


def test_flipped_and_cropped_copies_leak_from_train_into_val(tmp_path: Path) -> None:
    for index in range(8):
        write(tmp_path / "train" / f"{index}.png", natural(index))
    (_, flipped), *_ = copies(Image.fromarray(natural(3)))
    *_, (_, both) = copies(Image.fromarray(natural(5)))
    write(tmp_path / "val" / "a.png", flipped)
    write(tmp_path / "val" / "b.png", both)
    write(tmp_path / "val" / "c.png", natural(9))
    found = inspect_images(tmp_path, workers=0, measure=False).leakage["val in train"]
    val, train = tmp_path / "val", tmp_path / "train"
    assert found.near == (
        Leak(str(val / "a.png"), str(train / "3.png"), "flipped"),
        Leak(str(val / "b.png"), str(train / "5.png"), "flipped and cropped"),
    )


def test_pictures_of_one_straight_edge_are_not_taken_for_parts_of_one_another(
    tmp_path: Path,
) -> None:
    chance = np.random.default_rng(0)
    across, down = np.meshgrid(np.arange(32), np.arange(32))
    edges = []
    for angle in np.linspace(-0.3, 0.3, 5):
        for place in np.linspace(8, 24, 9):
            side = np.cos(angle) * across + np.sin(angle) * (down - 16) > place
            noise = chance.normal(0, 3, (32, 32))
            edges.append((60 + 120 * side + noise).clip(0, 255).astype(np.uint8))
    np.save(tmp_path / "edges.npy", np.stack(edges))
    found = inspect_images(tmp_path / "edges.npy", workers=0, measure=False).duplicates
    assert found.near == ()


@needs("photos")
def test_copies_of_real_photographs_are_found_and_no_others(tmp_path: Path) -> None:
    photographs = sorted((FOLDER / "photos").glob("*.JPEG"))[:40]
    wanted: dict[tuple[str, ...], tuple[str, ...]] = {}
    for index, file in enumerate(photographs):
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        image.thumbnail((256, 256))
        pair = tmp_path / f"{index:02}" / "a.png", tmp_path / f"{index:02}" / "b.png"
        how, pixels = list(copies(image))[index % 6]
        write(pair[0], np.asarray(image))
        write(pair[1], pixels)
        wanted[str(pair[0]), str(pair[1])] = (how,)
    found = inspect_images(tmp_path, workers=0, measure=False).duplicates
    told = dict(zip(found.near, found.near_how, strict=True))
    assert set(told) <= set(wanted)
    assert len(told) >= 38
    assert sum(wanted[pair] == how for pair, how in told.items()) >= len(told) - 2
