from pathlib import Path

import numpy as np
import pytest

from attmask.errors import UserError
from attmask.evaluation.cache import KEY, VECTORS, FeatureCache, default_cache

ONE = {"network": "a", "images": "b"}


def filled(folder: Path, key: dict[str, str], value: float = 1.0) -> FeatureCache:
    cache = FeatureCache(folder)
    with cache.writing(key, 5, 3) as share:
        assert share.rows == range(5)
        share.vectors[:] = value
        share.readable[:] = True
    return cache


def test_what_was_written_is_found_again_under_its_key_alone(tmp_path: Path) -> None:
    cache = filled(tmp_path, ONE)
    found = cache.find(ONE, 5, 3)
    assert found is not None
    assert found.vectors.tolist() == [[1.0] * 3] * 5
    assert found.readable.all()
    assert isinstance(found.vectors, np.memmap)
    assert cache.find({**ONE, "images": "c"}, 5, 3) is None


@pytest.mark.parametrize(("images", "width"), [(4, 3), (5, 4)])
def test_features_of_another_shape_are_not_used(tmp_path: Path, images: int, width: int) -> None:
    assert filled(tmp_path, ONE).find(ONE, images, width) is None


def test_damaged_features_are_not_used(tmp_path: Path) -> None:
    cache = filled(tmp_path, ONE)
    file = cache.place(ONE) / VECTORS
    file.write_bytes(file.read_bytes()[:-4])
    assert cache.find(ONE, 5, 3) is None
    filled(tmp_path, ONE)
    (cache.place(ONE) / KEY).write_text('{"network": "other"}')
    assert cache.find(ONE, 5, 3) is None


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)

    def half() -> None:
        with cache.writing(ONE, 5, 3) as share:
            share.vectors[:2] = 1
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power"):
        half()
    assert cache.find(ONE, 5, 3) is None
    assert list(tmp_path.iterdir()) == []


def test_writing_again_replaces(tmp_path: Path) -> None:
    filled(tmp_path, ONE)
    found = filled(tmp_path, ONE, 2.0).find(ONE, 5, 3)
    assert found is not None
    assert found.vectors[0, 0] == 2


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"cannot keep features in .*; make room, or choose"),
        FeatureCache(tmp_path / "file").writing(ONE, 5, 3),
    ):
        pass


def test_the_place_of_networks_without_a_run_is_the_users_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "attmask"
