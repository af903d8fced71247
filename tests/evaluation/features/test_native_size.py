from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.evaluation.features.native_size import NativeSize, common_side, whole_patches


def picture(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(1, 256, (height, width, 3), dtype=np.uint8)


def folder(root: Path, *sizes: tuple[int, int]) -> Source:
    for number, (height, width) in enumerate(sizes):
        Image.fromarray(picture(height, width)).save(root / f"{number}.png")
    return open_images(root).train


def test_a_picture_of_whole_patches_is_shown_as_it_is() -> None:
    pixels = picture(32, 48)
    crop = NativeSize(16)(pixels, 0)
    assert torch.equal(crop, torch.from_numpy(pixels).permute(2, 0, 1))


@pytest.mark.parametrize(("height", "width"), [(35, 50), (34, 62), (47, 33)])
def test_else_its_middle_is_shown(height: int, width: int) -> None:
    pixels = picture(height, width)
    crop = NativeSize(16)(pixels, 0)
    assert crop.shape == (3, 32, width // 16 * 16)
    lines, columns = height - 32, width - width // 16 * 16
    found = [
        (top, left)
        for top in range(lines + 1)
        for left in range(columns + 1)
        if np.array_equal(
            crop.permute(1, 2, 0).numpy(),
            pixels[top : top + 32, left : left + width // 16 * 16],
        )
    ]
    ((top, left),) = found
    assert abs(lines - 2 * top) <= 1
    assert abs(columns - 2 * left) <= 1


def test_one_smaller_than_a_patch_gets_a_black_border() -> None:
    crop = NativeSize(16)(picture(10, 20), 0)
    assert crop.shape == (3, 16, 16)
    assert (crop[:, :3] == 0).all()
    assert (crop[:, 3:13] > 0).all()
    assert (crop[:, 13:] == 0).all()


def test_in_a_batch_all_have_one_size_also_what_stands_for_an_unreadable_one() -> None:
    crop = NativeSize(14, side=64)
    assert crop.size_hw == (56, 56)
    assert NativeSize(14).size_hw is None
    assert crop(picture(64, 64), 0).shape == crop(picture(32, 32), 1).shape


def test_the_size_of_the_pictures_is_known_only_where_all_are_squares_of_one(
    tmp_path: Path,
) -> None:
    for name, sizes, side in (
        ("same", [(20, 20), (20, 20)], 20),
        ("sizes", [(20, 20), (24, 24)], None),
        ("shape", [(20, 24), (20, 24)], None),
    ):
        (tmp_path / name).mkdir()
        assert common_side(folder(tmp_path / name, *sizes)) == side
    (tmp_path / "same" / "1.png").write_bytes(b"no picture")
    assert common_side(open_images(tmp_path / "same").train) is None
    np.save(tmp_path / "x.npy", np.zeros((3, 20, 20, 3), dtype=np.uint8))
    assert common_side(open_images(tmp_path / "x.npy").train) == 20


def test_all_that_decides_the_pixels_is_in_the_description() -> None:
    different = [NativeSize(16), NativeSize(8), NativeSize(16, side=64)]
    assert len({str(each.describe()) for each in different}) == 3


@pytest.mark.parametrize(("side", "pixels"), [(224, 224), (230, 224), (5, 16)])
def test_whole_patches_are_at_least_one(side: int, pixels: int) -> None:
    assert whole_patches(side, 16) == pixels
