import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attmask.data.contents import contents
from attmask.data.sources import open_images
from attmask.data.stores.cifar import Batches
from attmask.errors import UserError
from tests.published import TEN, pictures, python2_pickle, write_binary, write_cifar10
from tests.published import write_cifar100 as write_100
from tests.sources import labels, names, touch

FIVE = [f"data_batch_{number}" for number in range(1, 6)]


@pytest.fixture
def cifar10(tmp_path: Path) -> Path:
    write_cifar10(tmp_path / "cifar-10-batches-py")
    return tmp_path / "cifar-10-batches-py"


def planes(row: np.ndarray) -> np.ndarray:
    """A row by its published definition: 1024 red values, then green, then blue, row-major."""
    red, green, blue = row[:1024], row[1024:2048], row[2048:]
    return np.stack([red.reshape(32, 32), green.reshape(32, 32), blue.reshape(32, 32)], axis=-1)


def test_the_batches_of_cifar_10_are_one_train_split_and_the_test_batch_is_test(
    tmp_path: Path,
) -> None:
    written = write_cifar10(tmp_path / "cifar-10-batches-py")
    images = open_images(tmp_path / "cifar-10-batches-py")
    assert {name: len(source) for name, source in images.splits.items()} == {
        "train": 20,
        "test": 4,
    }
    assert images.train.classes == TEN
    assert labels(images.train) == [n for name in FIVE for n in written[name][1]]
    assert images.test is not None
    assert labels(images.test) == written["test_batch"][1]
    assert images.train.classes == images.test.classes
    for index in range(20):
        read = images.train.read(index)
        assert isinstance(read, np.ndarray)
        assert read.flags.c_contiguous
        assert np.array_equal(read, planes(written[FIVE[index // 4]][0][index % 4]))
    assert names(images.train) == [f"{name}[{row}]" for name in FIVE for row in range(4)]
    assert list(images.train.store.shards) == [0, 4, 8, 12, 16]
    assert names(images.test) == [f"test_batch[{row}]" for row in range(4)]


def test_the_fine_labels_of_cifar_100_are_its_classes(tmp_path: Path) -> None:
    written = write_100(tmp_path / "cifar-100-python")
    images = open_images(tmp_path / "cifar-100-python")
    assert list(images.splits) == ["train", "test"]
    assert len(images.train.classes) == 100
    assert images.train.classes[17] == "kind 017"
    assert labels(images.train) == written["train"][1] == [0, 17, 34, 51, 68, 85]
    read = images.train.read(5)
    assert np.array_equal(read, planes(written["train"][0][5]))


@pytest.mark.parametrize("hundred", [False, True])
def test_the_binary_version_is_the_same_data_set(tmp_path: Path, hundred: bool) -> None:
    python, binary = tmp_path / "python", tmp_path / "binary"
    if hundred:
        kinds = [f"kind {number:03d}" for number in range(100)]
        write_binary(binary, write_100(python), kinds, "fine_label_names.txt")
    else:
        write_binary(binary, write_cifar10(python), TEN, "batches.meta.txt")
    one, other = open_images(python), open_images(binary)
    for split, source in one.splits.items():
        same = other.splits[split]
        assert (labels(source), source.classes) == (labels(same), same.classes)
        for index in range(len(source)):
            assert np.array_equal(source.read(index), same.read(index))


def test_the_parent_of_the_folder_is_enough_also_beside_the_archive(cifar10: Path) -> None:
    touch(cifar10.parent, "cifar-10-python.tar.gz")
    found = open_images(cifar10.parent)
    assert names(found.train) == names(open_images(cifar10).train)
    write_100(cifar10.parent / "cifar-100-python")
    with pytest.raises(UserError, match="holds cifar-10-batches-py and cifar-100-python; give one"):
        open_images(cifar10.parent)


def test_other_folders_beside_it_are_not_passed_over(cifar10: Path) -> None:
    touch(cifar10.parent, "birds/1.jpg")
    assert names(open_images(cifar10.parent).train) == ["birds/1.jpg"]


@pytest.mark.parametrize("binary", [False, True])
def test_processes_share_the_files_and_get_no_copies(tmp_path: Path, binary: bool) -> None:
    written = write_cifar10(tmp_path / "python", rows=40)
    write_binary(tmp_path / "binary", written, TEN, "batches.meta.txt")
    source = open_images(tmp_path / ("binary" if binary else "python")).train
    sent = pickle.dumps(source.store)
    assert len(sent) < 40 * 3072 / 10, "the place in the file, not the pixels"
    store = pickle.loads(sent)
    assert isinstance(store, Batches)
    assert np.array_equal(store.read(170), source.read(170))
    assert [file.name.partition(".")[0] for file in store.paths(np.array([170, 45, 50]))] == [
        "data_batch_2",
        "data_batch_5",
    ]


def test_a_changed_file_is_another_source(cifar10: Path) -> None:
    before = contents(open_images(cifar10).train), contents(open_images(cifar10).splits["test"])
    file = cifar10 / "data_batch_3"
    file.write_bytes(file.read_bytes().replace(b"training batch 3", b"training batch 9"))
    after = contents(open_images(cifar10).train), contents(open_images(cifar10).splits["test"])
    assert before[0] != after[0]
    assert before[1] == after[1]


def rewritten(**entries: object) -> Callable[[Path], None]:
    plain = {"data": pictures(2), "labels": [0, 1]}
    named = {key.encode(): value for key, value in {**plain, **entries}.items()}
    return lambda folder: _write(folder / "data_batch_2", python2_pickle(named))


def _write(file: Path, content: bytes) -> None:
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "data_batch_3").unlink(), "has no data_batch_3; CIFAR-10 consists of"),
        (lambda f: (f / "batches.meta").unlink(), "has no batches.meta; CIFAR-10 consists of"),
        (lambda f: _write(f / "test_batch", b""), "test_batch is damaged or not a pickle"),
        (
            lambda f: _write(f / "batches.meta", python2_pickle({b"label_names": [b"a", b"a"]})),
            "does not name the classes, each once",
        ),
        (rewritten(labels=[0]), "data_batch_2 is damaged: it does not have 2 labels"),
        (rewritten(labels=[0, b"x"]), "labels that are no numbers of classes"),
        (rewritten(labels=[0, 10]), r"labels 0 to 10, but batches\.meta names 10 classes"),
        (rewritten(data=pictures(2)[:, :3000]), r"shape \(2, 3000\), wanted images × 3072"),
        (rewritten(data=pictures(2).astype("u2")), "other numbers than bytes"),
        (rewritten(data=[1, 2]), "its data are no array"),
        (
            lambda f: _write(f / "data_batch_2", b"\x80\x02cos\nsystem\n(U\x04trueteR."),
            r"data_batch_2 names os\.system, which could run any code",
        ),
    ],
)
def test_what_is_missing_or_damaged_is_one_line(
    cifar10: Path, damage: Callable[[Path], object], says: str
) -> None:
    damage(cifar10)
    with pytest.raises(UserError, match=says) as told:
        open_images(cifar10)
    assert "\n" not in str(told.value)


def test_a_binary_file_of_another_length_is_refused(tmp_path: Path) -> None:
    write_binary(tmp_path / "b", write_cifar10(tmp_path / "a"), TEN, "batches.meta.txt")
    _write(tmp_path / "b" / "data_batch_4.bin", b"x" * 3074)
    with pytest.raises(UserError, match=r"has 3,074 bytes, not a multiple of 3,073"):
        open_images(tmp_path / "b")


def test_arrays_that_python_3_wrote_again_are_read_from_memory(cifar10: Path) -> None:
    data = pictures(2, seed=9)
    _write(cifar10 / "data_batch_1", pickle.dumps({b"data": data, b"labels": [3, 4]}, protocol=2))
    source = open_images(cifar10).train
    assert np.array_equal(source.read(1), planes(data[1]))
