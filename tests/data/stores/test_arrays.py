import pickle
from pathlib import Path

import numpy as np
import pytest

from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.sources import labels, names

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 6, 7, 3), dtype=np.uint8)


def raw(path: Path, index: int) -> np.ndarray:
    picture = open_images(path).train.read(index)
    assert isinstance(picture, np.ndarray)
    assert picture.flags.c_contiguous
    return picture


@pytest.mark.parametrize("shape", [(5, 6, 7), (5, 6, 7, 1), (5, 6, 7, 3), (5, 16, 17, 13)])
@pytest.mark.parametrize("dtype", ["u1", "<u2", ">u2", "u4", "i4", "f4"])
def test_an_array_of_any_numbers_gives_its_pictures_as_they_are(
    tmp_path: Path, shape: tuple[int, ...], dtype: str
) -> None:
    pixels = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    np.save(tmp_path / "a.npy", pixels)
    np.savez(tmp_path / "b.npz", pixels)
    np.savez_compressed(tmp_path / "c.npz", pixels)
    for name in ("a.npy", "b.npz", "c.npz"):
        assert np.array_equal(raw(tmp_path / name, 3), pixels[3])
        source = open_images(tmp_path / name).train
        assert names(source) == [f"{name}[{i}]" for i in range(5)]
        assert source.labels is None
        assert source.place(1) == str(tmp_path / f"{name}[1]")


def test_channels_first_are_turned_only_where_they_must_be(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PIXELS.transpose(0, 3, 1, 2))
    assert np.array_equal(raw(tmp_path / "a.npy", 2), PIXELS[2])
    np.save(tmp_path / "a.npy", PIXELS[:, :3])  # three rows, three channels last
    assert np.array_equal(raw(tmp_path / "a.npy", 2), PIXELS[2, :3])


def test_other_machines_byte_order_is_turned_into_this_ones(tmp_path: Path) -> None:
    deep = PIXELS.astype(">u2") * 257
    np.save(tmp_path / "a.npy", deep)
    found = raw(tmp_path / "a.npy", 2)
    assert found.dtype == np.uint16  # `>u2` is another type, which no table of depths is for
    assert np.array_equal(found, deep[2])


def test_true_is_white(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", PIXELS[..., 0] > 100)
    assert np.array_equal(raw(tmp_path / "a.npy", 2), (PIXELS[2, ..., 0] > 100) * 255)


@pytest.mark.parametrize(("x", "y"), [("images", "labels"), ("x", "y"), ("anything", "y")])
def test_labels_are_found_by_their_name(tmp_path: Path, x: str, y: str) -> None:
    np.savez(
        tmp_path / "a.npz",
        allow_pickle=False,
        **{y: np.array([[3], [1], [10], [3], [1]]), x: PIXELS},
    )
    source = open_images(tmp_path / "a.npz").train
    assert (labels(source), source.classes) == ([1, 0, 2, 1, 0], ("1", "3", "10"))


def test_labels_may_be_texts_or_whole_floats(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=PIXELS, y=np.array(["b", "a", "b", "a", "c"]))
    source = open_images(tmp_path / "a.npz").train
    assert (labels(source), source.classes) == ([1, 0, 1, 0, 2], ("a", "b", "c"))
    np.savez(tmp_path / "a.npz", x=PIXELS, y=np.array([2.0, 1.0, 2.0, 1.0, 1.0]))
    assert open_images(tmp_path / "a.npz").train.classes == ("1", "2")


def test_the_named_array_is_taken_among_several(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", masks=PIXELS[..., 0], images=PIXELS, names=np.array(["x"] * 5))
    assert raw(tmp_path / "a.npz", 0).shape == (6, 7, 3)


@pytest.mark.parametrize("split", ["val", "test"])
@pytest.mark.parametrize(
    ("x", "y"), [("x_{}", "y_{}"), ("{}_images", "{}_labels"), ("X_{}", "Y_{}")]
)
def test_the_splits_lie_in_one_file_under_any_usual_names(
    tmp_path: Path, split: str, x: str, y: str
) -> None:
    held = {x.format(split): PIXELS[:2], y.format(split): np.array([[7], [5]])}
    train = {x.format("train"): PIXELS, y.format("train"): np.array([5, 6, 7, 6, 5])}
    np.savez(tmp_path / "a.npz", allow_pickle=False, **train, **held)
    images = open_images(tmp_path / "a.npz")
    assert list(images.splits) == ["train", split]
    other = images.splits[split]
    assert (labels(images.train), labels(other)) == ([0, 1, 2, 1, 0], [2, 0])
    assert images.train.name(0) == f"a.npz/{x.format('train')}[0]"
    assert other.name(1) == f"a.npz/{x.format(split)}[1]"
    assert other.classes == images.train.classes == ("5", "6", "7")


def test_three_splits_are_told_apart_and_two_of_one_meaning_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_images=PIXELS, val_images=PIXELS[:1], test_images=PIXELS[:2])
    counts = {name: len(source) for name, source in open_images(tmp_path / "a.npz").splits.items()}
    assert counts == {"train": 5, "val": 1, "test": 2}
    np.savez(tmp_path / "a.npz", x_train=PIXELS, x_val=PIXELS, valid_images=PIXELS)
    with pytest.raises(UserError, match="x_val and valid_images, which both mean val; rename"):
        open_images(tmp_path / "a.npz")


def test_a_stored_array_is_pickled_by_its_place(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.repeat(PIXELS, 100, axis=0))
    source = open_images(tmp_path / "a.npz").train.subset([499])
    packed = pickle.dumps(source)
    assert len(packed) < 2000
    assert np.array_equal(pickle.loads(packed).read(0), PIXELS[4])


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"a": PIXELS, "b": PIXELS}, r"holds a \(5, 6, 7, 3\), b .*; wanted one array of pictures"),
        ({"y": np.arange(3)}, r"holds y \(3,\); wanted one array"),
        ({"x": PIXELS, "y": np.arange(4)}, "holds 5 pictures and 4 labels"),
        ({"x": PIXELS, "y": np.arange(5) / 2}, "y of .* is float64; wanted integers or texts"),
        ({"x": PIXELS[:0]}, "wanted numbers of shape N H W"),
        ({"x": PIXELS.astype(complex)}, "array of complex128 with shape"),
    ],
)
def test_other_arrays_are_refused_in_one_line(
    tmp_path: Path, arrays: dict[str, np.ndarray], complaint: str
) -> None:
    np.savez(tmp_path / "a.npz", allow_pickle=False, **arrays)
    with pytest.raises(UserError, match=complaint) as caught:
        open_images(tmp_path / "a.npz")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    np.save(file, PIXELS) if name == "a.npy" else np.savez(file, x=PIXELS)
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(UserError, match=f"{name} cannot be read as"):
        open_images(file)
    file.write_bytes(b"")
    with pytest.raises(UserError, match=f"{name} cannot be read as"):
        open_images(file)


def test_objects_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([PIXELS[0], None], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects"):
        open_images(tmp_path / "a.npy")
