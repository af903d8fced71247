import os
import pickle
import resource
import struct
from pathlib import Path

import numpy as np
import pytest

from attmask.data.stores.pickles import StoredArray, read_pickle
from attmask.errors import UserError
from tests.published import python2_pickle

ROWS = np.arange(7000, dtype=np.int64).astype(np.uint8).reshape(2, 3500)


def written(tmp_path: Path, content: bytes) -> Path:
    file = tmp_path / "batch"
    file.write_bytes(content)
    return file


def test_a_pickle_of_python_2_is_read_and_its_numbers_are_found_in_the_file(tmp_path: Path) -> None:
    entries = {b"data": ROWS, b"labels": [0, 255, 256, -3], b"label": b"a text", b"none": None}
    file = written(tmp_path, python2_pickle(entries))
    assert np.array_equal(pickle.loads(file.read_bytes(), encoding="bytes")[b"data"], ROWS)
    found = read_pickle(file)
    assert (found["labels"], found["label"], found["none"]) == ([0, 255, 256, -3], b"a text", None)
    array = found["data"]
    assert isinstance(array, StoredArray)
    assert array.content() == ((2, 3500), ROWS.tobytes())
    assert array.offset is not None
    assert file.read_bytes()[array.offset : array.offset + ROWS.size] == ROWS.tobytes()


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_a_pickle_of_python_3_is_read_too(tmp_path: Path, protocol: int) -> None:
    file = written(tmp_path, pickle.dumps({"data": ROWS, "a": [b"b", "c"]}, protocol))
    found = read_pickle(file)
    assert (found["a"][0], found["a"][1]) == (b"b", "c")
    assert found["data"].content() == ((2, 3500), ROWS.tobytes())


class _Payload:
    def __init__(self, touched: Path) -> None:
        self.touched = touched

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.touched),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_payload_does_not_run_and_is_refused_in_one_line(tmp_path: Path, protocol: int) -> None:
    touched = tmp_path / "ran"
    file = written(tmp_path, pickle.dumps({b"data": _Payload(touched)}, protocol))
    with pytest.raises(UserError, match=r"names (posix|nt)\.mkdir, which could run any code") as e:
        read_pickle(file)
    assert "\n" not in str(e.value)
    assert not touched.exists()
    pickle.loads(file.read_bytes())
    assert touched.exists(), "the payload works where it is allowed to run"


@pytest.mark.parametrize(
    "name",
    [
        b"cbuiltins\neval\n",
        b"cnumpy\nload\n",
        b"cnumpy.core.multiarray\nscalar\n",
        b"cattmask.data.stores.pickles\nread_pickle\n",
    ],
)
def test_nothing_that_is_not_a_part_of_an_array_is_found(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(UserError, match="could run any code"):
        read_pickle(written(tmp_path, b"\x80\x02" + name + b"."))


def test_a_pickle_cannot_change_what_stands_in_for_its_arrays(tmp_path: Path) -> None:
    sets = b"\x80\x02cnumpy\ndtype\n}(U\x04nameU\x02u1ub."  # BUILD on the class itself
    with pytest.raises(UserError, match="is damaged"):
        read_pickle(written(tmp_path, sets))
    assert not hasattr(__import__("attmask.data.stores.pickles").data.stores.pickles._Type, "name")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02",
        b"not a pickle",
        b"\x80\x02T" + struct.pack("<i", 2**31 - 1) + b"short.",  # a text longer than the file
        b"\x80\x04\x8e" + struct.pack("<Q", 2**62) + b".",
        b"\x80\x02}r" + struct.pack("<I", 2**32 - 1),  # a memo of four billion entries
        python2_pickle({b"data": ROWS})[:-200],
    ],
)
def test_a_damaged_pickle_is_refused_without_taking_memory(tmp_path: Path, content: bytes) -> None:
    file = written(tmp_path, content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match="is damaged or not a pickle; download it again"):
        read_pickle(file)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB


def test_what_is_no_dictionary_or_lacks_an_entry_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no dictionary"):
        read_pickle(written(tmp_path, python2_pickle([1])))
    found = read_pickle(written(tmp_path, python2_pickle({b"a": 1, b"b": 2})))
    with pytest.raises(UserError, match="has no data, only a, b; download it again"):
        found["data"]


@pytest.mark.parametrize("kind", ["i8", "f4"])
def test_an_array_of_other_numbers_is_no_array_of_bytes(tmp_path: Path, kind: str) -> None:
    found = read_pickle(written(tmp_path, python2_pickle({b"data": ROWS.astype(kind)})))
    with pytest.raises(ValueError, match="other numbers than bytes"):
        found["data"].content()
