import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.features.store import KEY, VALUES, FeatureStore, default_cache
from tests.runs import environment

ONE = {"network": "a", "images": "b", "readout": {"blocks": 1}}


def filled(folder: Path, key: dict[str, Any], value: float = 1.0) -> FeatureStore:
    cache = FeatureStore(folder)
    with cache.writing(key, 5, (3,)) as share:
        assert share.rows == range(5)
        share.values[:] = value
        share.readable[:] = True
    return cache


def test_what_was_written_is_found_again_under_its_key_alone(tmp_path: Path) -> None:
    cache = filled(tmp_path, ONE)
    found = cache.find(ONE, (3,))
    assert found is not None
    assert found.values.tolist() == [[1.0] * 3] * 5
    assert found.rows.tolist() == [0, 1, 2, 3, 4]
    assert isinstance(found.values, np.memmap)
    assert cache.find({**ONE, "images": "c"}, (3,)) is None


def test_features_of_another_width_are_not_used(tmp_path: Path) -> None:
    assert filled(tmp_path, ONE).find(ONE, (4,)) is None


def test_only_what_could_be_read_is_kept(tmp_path: Path) -> None:
    cache = FeatureStore(tmp_path)
    with cache.writing(ONE, 5, (3,)) as share:
        share.values[:] = np.arange(5)[:, None]
        share.readable[[0, 3]] = True
    found = cache.find(ONE, (3,))
    assert found is not None
    assert found.rows.tolist() == [0, 3]
    assert found.values.tolist() == [[0.0] * 3, [3.0] * 3]
    assert isinstance(found.values, np.memmap)


def test_damaged_features_are_not_used(tmp_path: Path) -> None:
    cache = filled(tmp_path, ONE)
    file = cache.path(ONE) / VALUES
    file.write_bytes(file.read_bytes()[:-4])
    assert cache.find(ONE, (3,)) is None
    filled(tmp_path, ONE)
    (cache.path(ONE) / KEY).write_text('{"network": "other"}')
    assert cache.find(ONE, (3,)) is None


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = FeatureStore(tmp_path)

    def half() -> None:
        with cache.writing(ONE, 5, (3,)) as share:
            share.values[:2] = 1
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power"):
        half()
    assert cache.find(ONE, (3,)) is None
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(
    tmp_path: Path,
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    own = atomic.new_writer()
    numbers = own.partition("-")[2]
    beside = FeatureStore(tmp_path).path(ONE).parent
    left, other = (
        beside / f".part-{dead.pid}-{numbers}@abc",
        beside / ".part-1-0f@elsewhere@abc",
    )
    alive = beside / f".part-{own}@abc"
    for folder in (left, other, alive):
        folder.mkdir(parents=True)
    filled(tmp_path, ONE)
    assert not left.exists()
    assert other.exists()
    assert alive.exists()


def test_a_full_disk_is_one_line_before_anything_is_computed(tmp_path: Path) -> None:
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "import numpy as np\n"
        "from attmask.errors import UserError\n"
        "from attmask.evaluation.features.store import FeatureStore\n"
        "import signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    with FeatureStore(Path(sys.argv[1])).writing({'readout': 0}, 999, (384,)) as share:\n"
        "        share.values[:] = 1\n"
        "except UserError as fault:\n"
        "    print(fault)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=60,
    )
    assert "cannot write features to" in said.stdout
    assert "make room" in said.stdout
    assert list(tmp_path.iterdir()) == []


def test_features_of_fewer_images_are_replaced(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    with store.writing(ONE, 5, (3,)) as share:
        share.readable[:4] = True
    found = filled(tmp_path, ONE, 2.0).find(ONE, (3,))
    assert found is not None
    assert found.values.tolist() == [[2.0] * 3] * 5


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"cannot write features to .*; make room, or choose"),
        FeatureStore(tmp_path / "file").writing(ONE, 5, (3,)),
    ):
        pass


def test_the_place_of_networks_without_a_run_is_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "attmask"


def test_what_was_left_for_another_crop_is_removed_too(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    numbers = atomic.new_writer().partition("-")[2]
    left = tmp_path / "another crop" / f".part-{dead.pid}-{numbers}@abc"
    left.mkdir(parents=True)
    filled(tmp_path, ONE)
    assert not left.parent.exists()


def test_rows_are_left_out_without_a_second_file(tmp_path: Path) -> None:
    store = FeatureStore(tmp_path)
    largest = 0
    with store.writing(ONE, 1000, (7, 3)) as share:
        share.values[:] = np.arange(1000)[:, None, None]
        share.readable[:] = np.arange(1000) % 3 != 1
        (part,) = store.path(ONE).parent.iterdir()
        largest = sum(file.stat().st_size for file in part.iterdir())
    found = store.find(ONE, (7, 3))
    assert found is not None
    kept = [i for i in range(1000) if i % 3 != 1]
    assert found.rows.tolist() == kept
    assert (found.values == np.array(kept)[:, None, None]).all()
    file = store.path(ONE) / VALUES
    assert file.stat().st_size == 128 + 4 * 21 * len(kept) < largest


def test_features_of_more_images_are_not_replaced_by_those_of_fewer(tmp_path: Path) -> None:
    store = filled(tmp_path, ONE)
    with store.writing(ONE, 5, (3,)) as share:
        share.values[:] = 2
        share.readable[:4] = True
    found = store.find(ONE, (3,))
    assert found is not None
    assert found.values.tolist() == [[1.0] * 3] * 5


def test_an_error_of_reading_is_not_taken_for_one_of_writing(tmp_path: Path) -> None:
    def read() -> None:
        with FeatureStore(tmp_path).writing(ONE, 5, (3,)):
            raise OSError("too many open files")

    with pytest.raises(OSError, match="too many open files"):
        read()
