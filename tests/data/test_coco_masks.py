"""Masks from polygons and run lengths, held against pycocotools."""

import builtins
from typing import Any

import numpy as np
import pytest

from attmask.data.coco_masks import Segmentation, areas, decode, encode, mask_library, rle_of
from attmask.errors import UserError

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # pycocotools
SIZE_WH = (13, 9)
BOX = (2.0, 1.0, 7.0, 5.0)


def masks(*segmentations: Segmentation) -> np.ndarray:
    return decode([rle_of(each, BOX, SIZE_WH) for each in segmentations], SIZE_WH)


def test_polygons_cover_the_pixels_that_pycocotools_says() -> None:
    oracle = pytest.importorskip("pycocotools.mask")
    generator = np.random.default_rng(0)
    for _ in range(50):
        parts = generator.uniform(-2, 14, (2, 10)).round(2).tolist()
        wanted = oracle.decode(oracle.merge(oracle.frPyObjects(parts, SIZE_WH[1], SIZE_WH[0])))
        assert np.array_equal(masks(parts)[0], wanted)


def test_plain_and_compressed_run_lengths_are_the_same_mask() -> None:
    drawn = np.random.default_rng(0).integers(0, 2, (1, 9, 13), dtype=np.uint8)
    columns = drawn[0].reshape(-1, order="F")
    changes = np.flatnonzero(np.diff(np.concatenate([[0], columns]))).tolist()
    runs = np.diff([0, *changes, columns.size])
    compressed = encode(drawn)[0]["counts"]
    assert np.array_equal(masks(runs.astype(np.int64), compressed), np.repeat(drawn, 2, axis=0))


def test_an_object_without_segmentation_fills_its_box() -> None:
    found = masks(None)[0]
    assert found[1:5, 2:7].all()
    assert found.sum() == 20


def test_masks_come_back_as_they_were() -> None:
    drawn = np.random.default_rng(1).integers(0, 2, (3, 9, 13), dtype=np.uint8)
    assert np.array_equal(decode(encode(drawn), SIZE_WH), drawn)
    assert areas(encode(drawn.astype(np.bool_))).tolist() == drawn.sum((1, 2)).tolist()


def test_no_objects_are_no_masks() -> None:
    assert decode([], SIZE_WH).shape == (0, 9, 13)
    assert encode(np.zeros((0, 9, 13), dtype=np.bool_)) == []
    assert areas([]).shape == (0,)


@pytest.mark.parametrize("wrong", [b"zzzzzz", b"", b"2"])
def test_run_lengths_that_do_not_fit_the_size_are_refused(wrong: bytes) -> None:
    with pytest.raises(ValueError, match="RLE"):
        rle_of(wrong, BOX, SIZE_WH)


def test_without_the_library_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *given: Any, **named: Any) -> Any:
        if name.startswith("faster_coco_eval"):
            raise ImportError(name)
        return real(name, *given, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=r"pip install 'attmask\[dense\]'"):
        mask_library()
