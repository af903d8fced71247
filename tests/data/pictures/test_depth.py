"""Values of any type become bytes: in order, over the full range, or not at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from attmask.data.pictures.depth import to_8_bits

SHAPES = arrays.array_shapes(min_dims=3, max_dims=3, max_side=6)


def row(*values: float, dtype: type) -> np.ndarray:
    return np.array(values, dtype)[None, :, None]


def bytes_of(values: np.ndarray, bits: int | None = None) -> list[int]:
    return [int(value) for value in to_8_bits(values, bits).flatten()]


@given(values=arrays.arrays(np.uint8, SHAPES))
def test_bytes_stay_as_they_are(values: np.ndarray) -> None:
    assert to_8_bits(values) is values


def test_true_is_white() -> None:
    assert bytes_of(row(True, False, dtype=np.bool_)) == [255, 0]


@given(values=arrays.arrays(np.uint16, SHAPES), bits=st.none() | st.integers(8, 16))
def test_deep_integers_keep_their_order_and_are_within_half_a_level(
    values: np.ndarray, bits: int | None
) -> None:
    depth = bits or next(b for b in (8, 10, 12, 14, 16) if values.max() < 2**b)
    exact = values.clip(max=2**depth - 1) / (2**depth - 1) * 255
    assert np.abs(to_8_bits(values, bits) - exact).max() <= 0.5 + 1e-9


@pytest.mark.parametrize(
    ("brightest", "white"),
    [(255, 255), (256, 1023), (1023, 1023), (4095, 4095), (4096, 16383), (16384, 65535)],
)
def test_without_a_depth_the_brightest_value_tells_it(brightest: int, white: int) -> None:
    assert bytes_of(row(0, brightest, dtype=np.uint16)) == [0, round(brightest / white * 255)]


def test_values_above_the_depth_given_are_white() -> None:
    assert bytes_of(row(0, 2048, 4095, 60000, dtype=np.uint16), bits=12) == [0, 128, 255, 255]


def test_floats_from_zero_to_one_are_not_stretched() -> None:
    assert bytes_of(row(0.2, 0.5, 0.8, dtype=np.float32)) == [51, 128, 204]


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.uint32, np.int64, np.float32, np.float64])
@given(data=st.data())
def test_other_numbers_go_from_their_least_to_their_greatest(
    data: st.DataObject, dtype: type
) -> None:
    elements = arrays.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    values = data.draw(arrays.arrays(dtype, SHAPES, elements=elements))
    pixels = to_8_bits(values)
    order = np.argsort(values, axis=None, kind="stable")
    assert (np.diff(pixels.flatten()[order].astype(int)) >= 0).all()
    unit = np.dtype(dtype).kind == "f" and values.min() >= 0 and values.max() <= 1
    if values.min() != values.max() and not unit:
        assert (pixels.min(), pixels.max()) == (0, 255)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_smallest_and_the_widest_range_are_stretched_alike(dtype: type) -> None:
    limits = np.finfo(dtype)
    least, most = float(limits.smallest_subnormal), float(limits.max)
    assert bytes_of(row(-least, 0, dtype=dtype)) == [0, 255]
    assert bytes_of(row(-most, 0, most, dtype=dtype)) == [0, 128, 255]


def test_an_even_picture_of_numbers_without_a_range_is_black() -> None:
    assert bytes_of(row(7, 7, dtype=np.int32)) == [0, 0]


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused(wrong: float) -> None:
    with pytest.raises(ValueError, match="infinite or not a number"):
        to_8_bits(row(0.5, wrong, dtype=np.float32))


def test_values_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="pixels of type complex128"):
        to_8_bits(np.zeros((2, 2, 1), np.complex128))
