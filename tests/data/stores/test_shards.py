import gzip
import logging
import multiprocessing
import pickle
from pathlib import Path

import pytest

from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.sources import labels, names, png, touch, write_tar


def shard(file: Path, first: int, count: int, with_label: bool = True) -> Path:
    members = {}
    for i in range(first, first + count):
        members[f"{i:04}.png"] = png(i)
        if with_label:
            members[f"{i:04}.cls"] = str(i % 3).encode()
    return write_tar(file, members)


def test_shards_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    shard(tmp_path / "b.tar", 3, 2)
    shard(tmp_path / "a.tar", 0, 3)
    source = open_images(tmp_path).train
    assert names(source)[2:4] == ["a.tar/0002.png", "b.tar/0003.png"]
    assert source.place(4) == str(tmp_path / "b.tar" / "0004.png")
    assert labels(source) == [0, 1, 2, 0, 1]
    assert source.classes == ("0", "1", "2")
    assert source.store.shards == (0, 3)
    assert [source.read(i) for i in range(5)] == [png(i) for i in range(5)]


def test_train_and_val_lie_in_folders_or_side_by_side(tmp_path: Path) -> None:
    for name in ("Train/0", "val/0", "train-0", "val-0"):
        part = "side" if "-" in name else "folders"
        shard(tmp_path / part / f"{name}.tar", 0 if "train" in name.lower() else 4, 4)
    for part in ("side", "folders"):
        images = open_images(tmp_path / part)
        assert images.val is not None
        assert (len(images.train), len(images.val)) == (4, 4)
        assert images.val.read(0) == png(4)
        assert labels(images.val) == [1, 2, 0, 1]


def test_without_labels_the_folders_in_the_tar_are_classes_if_all_have_one(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"dog/1.png": b"", "cat/deep/1.png": b""})
    source = open_images(tmp_path / "a.tar").train
    assert (labels(source), source.classes) == ([1, 0], ("cat", "dog"))
    write_tar(tmp_path / "b.tar", {"dog/1.png": b"", "1.png": b""})
    assert open_images(tmp_path / "b.tar").train.labels is None


def test_labels_that_only_some_samples_have_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shard(tmp_path / "a.tar", 0, 2)
    shard(tmp_path / "b.tar", 2, 1, with_label=False)
    with caplog.at_level(logging.WARNING):
        assert open_images(tmp_path).train.labels is None
    assert "1 of 3 samples" in caplog.text


def test_a_pickled_store_and_a_forked_process_read_the_same(tmp_path: Path) -> None:
    shard(tmp_path / "a.tar", 0, 40)
    source = open_images(tmp_path / "a.tar").train
    assert source.read(0) == png(0)  # the file is open now
    assert pickle.loads(pickle.dumps(source)).read(7) == png(7)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        both = pool.map(source.read, range(40), chunksize=1)
    assert both == [png(i) for i in range(40)]
    assert source.read(39) == png(39)


def test_few_files_are_open_at_a_time(tmp_path: Path) -> None:
    for i in range(80):
        shard(tmp_path / f"{i:02}.tar", i, 1)
    source = open_images(tmp_path).train
    before = open_files()
    for i in (*range(80), *range(80)):
        assert source.read(i) == png(i)
    assert before + 2 <= open_files() <= before + 64


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_shard_that_shrank_or_went_since_is_an_os_error(tmp_path: Path) -> None:
    file = shard(tmp_path / "a.tar", 0, 4)
    source, other = open_images(file).train, open_images(file).train
    with file.open("r+b") as opened:
        opened.truncate(600)
    with pytest.raises(OSError, match="the shard ends"):
        source.read(3)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        other.read(0)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.tgz", "a.tar.bz2"])
def test_a_compressed_tar_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    plain = shard(tmp_path / "a.tar", 0, 1).read_bytes()
    (tmp_path / "packed").mkdir()
    file = tmp_path / "packed" / name
    file.write_bytes(gzip.compress(plain))
    for data in (file, file.parent):
        with pytest.raises(UserError, match=f"{name} is a compressed tar.*unpack it"):
            open_images(data)


def test_shards_without_pictures_are_named(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", {"1.txt": b"text"})
    with pytest.raises(UserError, match=r"no images in .*a\.tar.*wanted members that end in \.jpg"):
        open_images(tmp_path)


def test_a_tar_beside_pictures_is_no_shard(tmp_path: Path) -> None:
    shard(tmp_path / "backup.tar", 0, 1)
    touch(tmp_path, "a/1.jpg")
    assert names(open_images(tmp_path).train) == ["a/1.jpg"]
