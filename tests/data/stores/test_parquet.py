import logging
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.sources import labels, names, png

FEATURES = datasets.Features(
    {
        "caption": datasets.Value("string"),
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
    }
)


def table(first: int, count: int) -> datasets.Dataset:
    shades = range(first, first + count)
    columns = {
        "caption": [str(i) for i in shades],
        "image": [{"bytes": png(i), "path": f"{i}.png"} for i in shades],
        "label": [i % 2 for i in shades],
    }
    return datasets.Dataset.from_dict(columns, features=FEATURES)


def write(root: Path, name: str, first: int, count: int) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(first, count).data.table, root / name, row_group_size=3)


@pytest.mark.parametrize("below", ["", "data/"])
def test_parquet_files_of_hugging_face_give_their_pictures(tmp_path: Path, below: str) -> None:
    write(tmp_path, f"{below}train-00000-of-00002.parquet", 0, 7)
    write(tmp_path, f"{below}train-00001-of-00002.parquet", 7, 4)
    write(tmp_path, f"{below}validation-00000-of-00001.parquet", 11, 2)
    images = open_images(tmp_path)
    assert images.val is not None
    assert [images.train.read(i) for i in (10, 0, 7, 5, 3)] == [png(i) for i in (10, 0, 7, 5, 3)]
    assert images.val.read(1) == png(12)
    assert images.train.name(8) == f"{below}train-00001-of-00002.parquet[1]"
    assert labels(images.train) == [i % 2 for i in range(11)]
    assert (labels(images.val), images.val.classes) == ([1, 0], ("cat", "dog"))
    assert images.train.store.shards == (0, 3, 6, 7, 10)


@pytest.mark.parametrize("name", ["{}-00000-of-00001.parquet", "data/{}-0.parquet", "{}/0.parquet"])
def test_all_splits_of_parquet_files_are_opened(tmp_path: Path, name: str) -> None:
    for first, split in enumerate(("Train", "valid", "test")):
        write(tmp_path, name.format(split), first, first + 1)
    images = open_images(tmp_path)
    counts = {split: len(source) for split, source in images.splits.items()}
    assert counts == {"train": 1, "val": 2, "test": 3}
    assert images.test is not None
    assert images.test.read(2) == png(4)


def test_a_single_file_with_pictures_is_no_list(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 0, 4)
    source = open_images(tmp_path / "a.parquet").train
    assert names(source) == [f"a.parquet[{i}]" for i in range(4)]
    assert source.read(3) == png(3)


def test_a_column_of_bytes_and_labels_of_any_kind_are_read(tmp_path: Path) -> None:
    columns = {"img": [png(1), None, png(3)], "class": ["b", "a", "b"]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    source = open_images(tmp_path).train
    assert source.read(2) == png(3)
    assert (labels(source), source.classes) == ([1, 0, 1], ("a", "b"))
    with pytest.raises(OSError, match="the cell is empty"):
        source.read(1)


def test_labels_that_only_some_files_have_are_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pq.write_table(pa.table({"image": [png(1)], "label": [3]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"image": [png(2)]}), tmp_path / "1.parquet")
    source = open_images(tmp_path).train
    assert (len(source), source.labels, source.classes) == (2, None, ())
    assert "1.parquet has no column label" in caplog.text


def test_a_file_without_the_column_of_pictures_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": [png(1)]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"img": [png(2)]}), tmp_path / "1.parquet")
    with pytest.raises(UserError, match=r"1\.parquet has no column image, 0\.parquet has one"):
        open_images(tmp_path)


def test_a_picture_that_is_only_a_path_is_read_from_there(tmp_path: Path) -> None:
    (tmp_path / "1.dat").write_bytes(png(1))
    cells = pa.array(
        [{"bytes": None, "path": "1.dat"}], pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    pq.write_table(pa.table({"image": cells}), tmp_path / "a.parquet")
    assert open_images(tmp_path).train.read(0) == png(1)


def test_a_pickled_store_and_a_forked_process_read_the_same(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", 0, 20)
    source = open_images(tmp_path).train
    assert source.read(0) == png(0)
    assert pickle.loads(pickle.dumps(source)).read(7) == png(7)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(source.read, range(20), chunksize=1) == [png(i) for i in range(20)]


def test_large_row_groups_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pq.write_table(pa.table({"image": [b"x"] * 1001}), tmp_path / "a.parquet")
    with caplog.at_level(logging.WARNING):
        open_images(tmp_path)
    assert "row groups of 1001 pictures" in caplog.text


def test_files_without_pictures_are_named_with_their_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"url": ["x"], "width": [1]}), tmp_path / "a.parquet")
    with pytest.raises(
        UserError, match=r"a\.parquet has the columns url, width and none of pictures"
    ):
        open_images(tmp_path)
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "a.parquet")
    with pytest.raises(UserError, match="has no rows"):
        open_images(tmp_path)


def test_without_pyarrow_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").touch()
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\n"
        "from attmask.data.sources import open_images\n"
        "from attmask.errors import UserError\n"
        "try: open_images(Path(sys.argv[1]))\n"
        "except UserError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "a.parquet")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install 'attmask[parquet]'" in done.stdout
