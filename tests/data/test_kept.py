import logging
from pathlib import Path

import numpy as np
import pytest

from attmask.data.kept import kept_arrays
from attmask.data.source import Source
from attmask.data.stores.mapped import Mapped
from tests.data.stores.test_index import keep, settle
from tests.sources import touch


@pytest.fixture
def source(tmp_path: Path) -> Source:
    settle(touch(tmp_path / "data", "a/1.jpg", "b/2.jpg"))
    return keep(tmp_path / "data", tmp_path / "run").train


def test_arrays_are_made_once_and_mapped_by_whoever_asks_again(
    source: Source, tmp_path: Path
) -> None:
    made = []

    def make() -> dict[str, np.ndarray]:
        made.append(1)
        return {"rows": np.arange(5), "labels": np.zeros(5, dtype=np.int16)}

    for _ in range(2):
        arrays = kept_arrays(source, "percent=50", make)
        assert arrays["rows"].tolist() == [0, 1, 2, 3, 4]
        assert isinstance(arrays["labels"], Mapped)
    assert len(made) == 1
    kept_arrays(source, "percent=60", make)
    assert len(made) == 2
    assert len(list((tmp_path / "run").glob("index-*.npz"))) == 2


def test_without_a_folder_arrays_stay_in_memory(
    source: Source, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arrays = kept_arrays(source.subset([0]), "percent=50", lambda: {"rows": np.arange(1)})
    assert arrays["rows"].tolist() == [0]
    assert source.listing is not None
    source.listing.folder = tmp_path / "data" / "a" / "1.jpg"
    with caplog.at_level(logging.WARNING):
        made = kept_arrays(source, "percent=50", lambda: {"rows": np.arange(3)})
    assert made["rows"].tolist() == [0, 1, 2]
    assert "each process makes its own" in caplog.text
