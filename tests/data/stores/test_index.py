import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from attmask.data.images import Images
from attmask.data.sources import open_images
from attmask.data.stores import index as index_module
from attmask.data.stores.index import FILE, is_index
from tests.sources import labels, names, png, touch, write_tar

LONG_AGO = 1_700_000_000


def settle(root: Path, when: int = LONG_AGO) -> None:
    """Make everything look as if it had been left alone for long."""
    for path in [root, *root.rglob("*")]:
        os.utime(path, (when, when))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    touch(root, "train/a/1.jpg", "train/b/deep/2.jpg", "val/a/3.jpg", "val/a/4.jpg")
    settle(root)
    return root


def keep(data: Path, run: Path) -> Images:
    """The images in the index that is kept of them."""
    return open_images(data, index=run).keep_index(run)


def is_used(data: Path, run: Path) -> bool:
    return open_images(data, index=run).found is None


def both(images: Images) -> list[object]:
    assert images.val is not None
    sources = (images.train, images.val)
    return [(names(s), labels(s), tuple(s.classes), s.root) for s in sources]


def test_a_fresh_index_gives_what_the_scan_gave(data: Path, tmp_path: Path) -> None:
    scanned = open_images(data, index=tmp_path / "run")
    kept = scanned.keep_index(tmp_path / "run")
    indexed = open_images(data, index=tmp_path / "run")
    assert scanned.found is not None
    assert kept.found is indexed.found is None
    assert both(kept) == both(indexed) == both(scanned)
    assert [file.name for file in (tmp_path / "run").iterdir()] == [FILE]


def test_every_split_and_what_was_passed_over_are_kept(data: Path, tmp_path: Path) -> None:
    touch(data, "Testing/b/1.jpg", "train/a/notes.txt", "train/a/2.RAW", "train/a/3.raw")
    settle(data)
    keep(data, tmp_path / "run")
    indexed = open_images(data, index=tmp_path / "run")
    assert indexed.found is None
    assert {name: len(s) for name, s in indexed.splits.items()} == {"train": 2, "val": 2, "test": 1}
    assert indexed.test is not None
    assert (indexed.test.root, labels(indexed.test)) == (data / "Testing", [1])
    assert indexed.skipped == {".txt": 1, ".raw": 2}


def test_a_split_that_appears_makes_a_new_scan(data: Path, tmp_path: Path) -> None:
    keep(data, tmp_path / "run")
    touch(data, "test/b/1.jpg")
    assert list(open_images(data, index=tmp_path / "run").splits) == ["train", "val", "test"]


def test_a_fresh_index_of_shards_reads_the_same_bytes(tmp_path: Path) -> None:
    for shard in range(3):
        members = {f"{shard}{i}.png": png(10 * shard + i) for i in range(4)}
        write_tar(tmp_path / "data" / f"{shard}.tar", members)
    settle(tmp_path / "data")
    scanned = open_images(tmp_path / "data").train
    keep(tmp_path / "data", tmp_path / "run")
    indexed = open_images(tmp_path / "data", index=tmp_path / "run").train
    assert is_used(tmp_path / "data", tmp_path / "run")
    for i in range(12):
        assert indexed.name(i) == scanned.name(i)
        assert indexed.read(i) == scanned.read(i) == png(10 * (i // 4) + i % 4)
    assert indexed.store.shards == scanned.store.shards == (0, 4, 8)


@pytest.mark.parametrize("part", ["train", "val"])
def test_one_more_shard_makes_an_index_of_shards_stale(tmp_path: Path, part: str) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    write_tar(data / "train/0.tar", {"0.png": png(0)})
    write_tar(data / "val/0.tar", {"1.png": png(1)})
    settle(data)
    keep(data, run)
    assert is_used(data, run)
    write_tar(data / part / "1.tar", {"2.png": png(2)})
    images = open_images(data, index=run)
    assert images.val is not None
    assert len(images.train) + len(images.val) == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda data: touch(data, "train/a/5.jpg"),
        lambda data: touch(data, "train/b/deep/5.jpg"),
        lambda data: touch(data, "train/c/5.jpg"),
        lambda data: (data / "val/a/3.jpg").unlink(),
        lambda data: (data / "val/a/3.jpg").rename(data / "val/a/6.jpg"),
        lambda data: (data / "val").rename(data / "elsewhere"),
    ],
)
def test_any_change_of_the_files_makes_a_new_scan(
    data: Path,
    tmp_path: Path,
    change: Callable[[Path], object],
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = keep(data, tmp_path / "run")
    change(data)
    with caplog.at_level(logging.INFO):
        after = open_images(data, index=tmp_path / "run")
    assert after.found is not None
    assert "the images have changed since the last scan and are scanned again" in caplog.text
    found = [names(source) for source in (after.train, after.val) if source]
    assert found != [names(source) for source in (before.train, before.val) if source]


def test_images_that_appear_beside_train_are_seen_where_they_change_what_train_is(
    tmp_path: Path,
) -> None:
    data = touch(tmp_path / "data", "train/1.jpg", "notes/readme.md")
    settle(data)
    keep(data, tmp_path / "run")
    touch(data, "notes/2.jpg")
    assert open_images(data, index=tmp_path / "run").train.classes == ("notes", "train")


def test_what_changed_just_before_the_scan_is_not_trusted(data: Path, tmp_path: Path) -> None:
    touch(data, "train/a/5.jpg")  # now: a file made in the same tick would not show
    keep(data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_index_of_other_images_is_not_used(data: Path, tmp_path: Path) -> None:
    keep(data, tmp_path / "run")
    other = touch(tmp_path / "other", "1.jpg")
    assert names(open_images(other, index=tmp_path / "run").train) == ["1.jpg"]


def test_images_that_moved_under_the_same_name_keep_their_index(data: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(data)
    keep(link, tmp_path / "run")
    data.rename(tmp_path / "moved")
    link.unlink()
    link.symlink_to(tmp_path / "moved")
    assert is_used(link, tmp_path / "run")


@pytest.mark.parametrize("where", [0.0, 0.3, 0.5, 0.7, 0.99])
def test_a_damaged_index_is_ignored(data: Path, tmp_path: Path, where: float) -> None:
    keep(data, tmp_path / "run")
    file = tmp_path / "run" / FILE
    whole = file.read_bytes()
    cut = int(len(whole) * where)
    file.write_bytes(whole[:cut])
    assert both(open_images(data, index=tmp_path / "run")) == both(open_images(data))
    file.write_bytes(whole[:cut] + bytes([whole[cut] ^ 255]) + whole[cut + 1 :])
    assert both(open_images(data, index=tmp_path / "run")) == both(open_images(data))


def test_an_index_is_replaced_by_a_newer_one(data: Path, tmp_path: Path) -> None:
    keep(data, tmp_path / "run")
    touch(data, "train/a/5.jpg")
    settle(data, LONG_AGO + 1)
    keep(data, tmp_path / "run")
    assert is_used(data, tmp_path / "run")
    assert "a/5.jpg" in names(open_images(data, index=tmp_path / "run").train)


def test_a_folder_that_cannot_be_written_is_a_warning(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("a file")
    keep(data, tmp_path / "run")
    assert "cannot keep the index" in caplog.text


def test_an_indexed_source_is_pickled_by_its_place_and_read_by_another_process(
    tmp_path: Path,
) -> None:
    data = touch(tmp_path / "data", *(f"long-name-of-a-class/{i:05}.jpg" for i in range(2000)))
    (data / "long-name-of-a-class/01234.jpg").write_bytes(b"found")
    settle(data)
    keep(data, tmp_path / "run")
    source = open_images(data, index=tmp_path / "run").train
    small = pickle.dumps(source.subset(np.array([1234])))
    assert len(small) < 2500
    (tmp_path / "source").write_bytes(small)
    script = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).read(0).decode())"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "source")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "found\n"


def test_a_list_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "data" / "list.txt"
    file.parent.mkdir()
    file.write_text("1.jpg\n2.jpg\n")
    settle(tmp_path / "data")
    keep(file, tmp_path / "run")
    assert is_used(file, tmp_path / "run")
    assert open_images(file, index=tmp_path / "run").train.root == tmp_path / "data"
    file.write_text("1.jpg\n3.jpg\n")
    assert names(open_images(file, index=tmp_path / "run").train) == ["1.jpg", "3.jpg"]


MEASURE = """
import pickle, sys, tracemalloc
from pathlib import Path
from attmask.data.sources import open_images
file, run = map(Path, sys.argv[1:])
open_images(file, index=run).keep_index(run)
tracemalloc.start()
source = open_images(file, index=run).train
source.name(len(source) // 2)
print(len(source), *tracemalloc.get_traced_memory(), len(pickle.dumps(source)))
"""


def test_two_hundred_thousand_images_take_few_bytes_and_no_memory(tmp_path: Path) -> None:
    images = 200_000
    file, run = tmp_path / "list.csv", tmp_path / "run"
    named = ((f"n{i % 100:08}", i) for i in range(images))
    rows = (f"{folder}/{folder}_{i:08}.JPEG,{folder}\n" for folder, i in named)
    file.write_text("path,label\n" + "".join(rows))
    os.utime(file, (LONG_AGO, LONG_AGO))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(file), str(run)],
        capture_output=True,
        text=True,
        check=True,
    )
    count, held, peak, pickled = map(int, done.stdout.split())
    assert count == images
    assert (run / FILE).stat().st_size < 12 * images  # names of 28 letters, and labels
    assert held < 100_000
    assert peak < 3_000_000  # members are checked one after the other
    assert pickled < 5000


def test_a_column_that_is_not_checked_may_be_damaged_without_a_crash(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "_CHECKED_BYTES", 0)
    keep(data, tmp_path / "run")
    file = tmp_path / "run" / FILE
    whole = file.read_bytes()
    for place in range(0, len(whole), 97):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :])
        with suppress(OSError):  # the index of the images is damaged
            for source in open_images(data, index=tmp_path / "run").splits.values():
                names(source)


def test_an_index_may_lie_alone_where_a_run_will_be() -> None:
    part = ".part-12-ab@host-1@index.npz"
    for name, is_one in ((FILE, True), ("index-0a.npz", True), (part, True), ("x.npz", False)):
        assert is_index(Path(name)) == is_one
