import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import datasets
import pytest

from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.sources import labels, names, png


def dataset(first: int, count: int, labelled: bool = True) -> datasets.Dataset:
    shades = range(first, first + count)
    columns: dict[str, list[object]] = {"image": [{"bytes": png(i), "path": None} for i in shades]}
    features = {"image": datasets.Image()}
    if labelled:
        columns["label"] = [i % 3 for i in shades]
        features["label"] = datasets.ClassLabel(names=["x", "y", "z"])
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def test_a_saved_dataset_gives_its_pictures_and_class_names(tmp_path: Path) -> None:
    dataset(0, 10).save_to_disk(str(tmp_path / "saved"), num_shards=3)
    source = open_images(tmp_path / "saved").train
    assert [source.read(i) for i in range(10)] == [png(i) for i in range(10)]
    assert names(source)[:2] == ["saved[0]", "saved[1]"]
    assert (labels(source), source.classes) == ([i % 3 for i in range(10)], ("x", "y", "z"))


def test_what_was_selected_and_shuffled_before_saving_is_what_is_read(tmp_path: Path) -> None:
    dataset(0, 10).select([7, 2, 5]).save_to_disk(str(tmp_path / "saved"))
    source = open_images(tmp_path / "saved").train
    assert [source.read(i) for i in range(3)] == [png(7), png(2), png(5)]
    assert labels(source) == [1, 2, 2]


@pytest.mark.parametrize("held_out", ["validation", "val", "test"])
def test_the_splits_of_a_dictionary_are_train_and_what_is_held_out(
    tmp_path: Path, held_out: str
) -> None:
    splits = datasets.DatasetDict({"train": dataset(0, 4), held_out: dataset(4, 3)})
    splits.save_to_disk(str(tmp_path / "saved"))
    images = open_images(tmp_path / "saved")
    assert list(images.splits) == ["train", "test" if held_out == "test" else "val"]
    assert images.held_out is not None
    assert (len(images.train), len(images.held_out)) == (4, 3)
    assert images.held_out.read(0) == png(4)
    assert images.held_out.place(1) == str(tmp_path / "saved" / f"{held_out}[1]")
    assert images.held_out.classes == images.train.classes


def test_all_splits_of_a_dictionary_are_opened_and_others_are_said_to_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    parts = ("Train", "dev", "test", "unlabeled")
    splits = datasets.DatasetDict({name: dataset(i, i + 1) for i, name in enumerate(parts)})
    splits.save_to_disk(str(tmp_path / "saved"))
    images = open_images(tmp_path / "saved")
    counts = {name: len(source) for name, source in images.splits.items()}
    assert counts == {"train": 1, "val": 2, "test": 3}
    assert caplog.messages == [f"{tmp_path / 'saved'}: the splits unlabeled are left out"]


def test_without_a_train_split_those_there_are_are_named(tmp_path: Path) -> None:
    datasets.DatasetDict({"fold1": dataset(0, 2)}).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(UserError, match="has the splits fold1; wanted train"):
        open_images(tmp_path / "saved")


def test_a_pickled_store_and_a_forked_process_read_the_same(tmp_path: Path) -> None:
    dataset(0, 20, labelled=False).save_to_disk(str(tmp_path / "saved"))
    source = open_images(tmp_path / "saved").train
    assert source.labels is None
    assert source.read(0) == png(0)
    assert len(pickle.dumps(source)) < 2000
    assert pickle.loads(pickle.dumps(source)).read(7) == png(7)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(source.read, range(20), chunksize=1) == [png(i) for i in range(20)]


def test_nothing_is_written_beside_or_into_a_saved_dataset(tmp_path: Path) -> None:
    dataset(0, 5).save_to_disk(str(tmp_path / "saved"))
    before = sorted(tmp_path.rglob("*"))
    open_images(tmp_path / "saved").train.read(3)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dataset_without_pictures_is_named_with_its_columns(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"text": ["a"], "n": [1]}).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(UserError, match="has the columns text, n and none of pictures"):
        open_images(tmp_path / "saved")


def test_a_broken_dataset_is_named(tmp_path: Path) -> None:
    dataset(0, 2).save_to_disk(str(tmp_path / "saved"))
    (tmp_path / "saved" / "state.json").write_text("{}")
    with pytest.raises(UserError, match="saved cannot be opened"):
        open_images(tmp_path / "saved")


def test_without_datasets_the_extra_is_named(tmp_path: Path) -> None:
    dataset(0, 2).save_to_disk(str(tmp_path / "saved"))
    script = (
        "import sys; sys.modules['datasets'] = None\n"
        "from pathlib import Path\n"
        "from attmask.data.sources import open_images\n"
        "from attmask.errors import UserError\n"
        "try: open_images(Path(sys.argv[1]))\n"
        "except UserError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "saved")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install 'attmask[huggingface]'" in done.stdout
