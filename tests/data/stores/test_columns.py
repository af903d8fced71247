from pathlib import Path

import numpy as np
import pytest

from attmask.data.stores import columns
from attmask.data.stores.columns import Chunks, Column, disk_of, looked_up, narrowest, pieces
from attmask.errors import UserError


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "CHUNK", 8)
    monkeypatch.setattr(columns, "_IN_MEMORY", 100)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("count", [0, 1, 8, 9, 100])
def test_a_column_is_the_same_in_memory_and_in_a_file(tmp_path: Path, count: int) -> None:
    for scratch in (None, tmp_path, tmp_path / "missing"):
        column = Column(scratch)
        for number in range(count):
            column.append(number * number)
        assert len(column) == count
        built = column.build()
        assert built.tolist() == [number * number for number in range(count)]
        assert column.build_narrow().tolist() == built.tolist()
        assert isinstance(built, np.memmap) == (scratch == tmp_path and count == 100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("small")
def test_what_was_built_outlives_its_builder(tmp_path: Path) -> None:
    chunks = Chunks(np.int16, tmp_path)
    for begin in range(0, 300, 10):
        chunks.add(np.arange(begin, begin + 10))
    built = chunks.build()
    del chunks
    assert built.dtype == np.int16
    assert built.tolist() == list(range(300))


@pytest.mark.usefixtures("small")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_error_of_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(columns, "_nameless", lambda _: full)
        with pytest.raises(UserError, match="No space left on device; make room or choose"):
            Chunks(np.int64, Path("runs")).add(np.arange(10_000))


def test_the_smallest_type_that_holds_all_is_used() -> None:
    assert [narrowest(n) for n in (0, 32767, 32768, 2**31)] == [
        np.int16,
        np.int16,
        np.int32,
        np.int64,
    ]
    table = np.array([40_000, -1, 7])
    found = looked_up(table, np.array([2, 2, 0, 1]))
    assert found.dtype == np.int32
    assert found.tolist() == [7, 7, 40_000, -1]


def test_pieces_cover_everything_once() -> None:
    assert [list(range(10))[piece] for piece in pieces(10, 4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9],
    ]
    assert list(pieces(0)) == []


def test_the_disk_of_a_run_that_is_not_there_yet_is_that_of_the_folder_above(
    tmp_path: Path,
) -> None:
    assert disk_of(tmp_path / "runs" / "one") == tmp_path
    assert disk_of(tmp_path / ("x" * 300)) is None
