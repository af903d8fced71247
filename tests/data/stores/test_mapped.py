import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from attmask.data.stores.mapped import Mapped, map_npy, map_npz, npz_shapes

ANY = arrays.arrays(
    st.sampled_from(["u1", "<i8", ">u2", "f4", "?"]), arrays.array_shapes(min_dims=1, min_side=0)
)


@given(array=ANY, turned=st.booleans())
def test_a_mapped_array_is_the_one_that_was_saved(
    array: np.ndarray, turned: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("arrays")
    array = np.asfortranarray(array) if turned else array
    np.save(folder / "a.npy", array)
    np.savez(folder / "stored.npz", other=np.arange(3), a=array)
    np.savez_compressed(folder / "small.npz", a=array)
    for found in (
        map_npy(folder / "a.npy"),
        map_npz(folder / "stored.npz", "a"),
        map_npz(folder / "small.npz", "a"),
    ):
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype
    assert npz_shapes(folder / "stored.npz") == {"other": (3,), "a": array.shape}


def test_a_mapped_array_is_pickled_by_its_place(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.arange(100_000))
    mapped = map_npz(tmp_path / "a.npz", "a")
    assert isinstance(mapped, Mapped)
    packed = pickle.dumps(mapped)
    assert len(packed) < 2000
    copy = pickle.loads(packed)
    assert isinstance(copy, Mapped)
    assert np.array_equal(copy, mapped)
    assert pickle.dumps(copy) == packed


def test_what_is_cut_from_it_is_pickled_as_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10))
    mapped = map_npy(tmp_path / "a.npy")
    for part in (mapped[2:5], mapped[[2, 3, 4]], mapped.reshape(2, 5), mapped + 1):
        copy = pickle.loads(pickle.dumps(part))
        assert type(copy) is np.ndarray
        assert np.array_equal(copy, part)


def test_a_file_that_was_changed_since_is_not_mapped_again(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10))
    packed = pickle.dumps(map_npy(tmp_path / "a.npy"))
    os.utime(tmp_path / "a.npy", ns=(1, 1))
    with pytest.raises(OSError, match="was changed while it was read"):
        pickle.loads(packed)


def test_objects_are_refused_and_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Python objects"):
        map_npy(tmp_path / "a.npy")
