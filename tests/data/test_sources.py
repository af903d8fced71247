import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from attmask.data.sources import IMAGENET_MEAN, IMAGENET_STD, DataConfig, Source, open_images
from attmask.errors import UserError


def make(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def names(source: Source) -> list[str]:
    return [path.as_posix() for path in source.paths]


def labelled(counts: list[int]) -> Source:
    pairs = [(label, i) for label, count in enumerate(counts) for i in range(count)]
    paths = tuple(Path(f"{label}/{i:03}.png") for label, i in pairs)
    labels = tuple(label for label, _ in pairs)
    return Source(Path("root"), paths, labels, tuple(map(str, range(len(counts)))))


def test_a_flat_folder_has_no_labels(tmp_path: Path) -> None:
    images = open_images(make(tmp_path, "b.jpg", "a.PNG", "c.Tiff"))
    assert names(images.train) == ["a.PNG", "b.jpg", "c.Tiff"]
    assert images.train.labels is None
    assert images.train.classes == ()
    assert images.val is None
    assert images.train.path(1) == tmp_path / "b.jpg"


def test_sub_folders_are_classes_in_the_order_of_their_names(tmp_path: Path) -> None:
    source = open_images(make(tmp_path, "dog/2.jpg", "dog/1.jpg", "cat/deep/er/3.jpg")).train
    assert names(source) == ["cat/deep/er/3.jpg", "dog/1.jpg", "dog/2.jpg"]
    assert source.classes == ("cat", "dog")
    assert source.labels == (0, 1, 1)


def test_labels_never_decrease_even_where_a_class_name_continues_another(tmp_path: Path) -> None:
    source = open_images(make(tmp_path, "a/1.jpg", "a-b/1.jpg", "a b/1.jpg")).train
    assert source.classes == ("a", "a b", "a-b")
    assert source.labels == (0, 1, 2)


def test_train_and_val_share_the_numbers_of_their_classes(tmp_path: Path) -> None:
    images = open_images(make(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "val/b/2.jpg"))
    assert images.train.labels == (0, 1)
    assert images.val is not None
    assert images.val.labels == (1,)
    assert images.val.classes == images.train.classes
    assert images.val.root == tmp_path / "val"


def test_a_class_only_val_has_is_refused_by_name(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.jpg", "val/a/1.jpg", "val/bird/1.jpg")
    with pytest.raises(UserError, match="bird"):
        open_images(tmp_path)


def test_a_labelled_val_beside_an_unlabelled_train_keeps_its_labels(tmp_path: Path) -> None:
    images = open_images(make(tmp_path, "train/1.jpg", "val/a/1.jpg", "val/b/1.jpg"))
    assert images.train.labels is None
    assert images.val is not None
    assert images.val.labels == (0, 1)


def test_masks_and_trimaps_beside_train_are_ignored(tmp_path: Path) -> None:
    make(tmp_path, "train/a/1.jpg", "trimaps/train/a/1.png", "masks/1.png", "README.md")
    images = open_images(tmp_path)
    assert names(images.train) == ["a/1.jpg"]
    assert images.val is None


def test_train_among_other_classes_is_a_class(tmp_path: Path) -> None:
    source = open_images(make(tmp_path, "bus/1.jpg", "car/1.jpg", "train/1.jpg")).train
    assert source.classes == ("bus", "car", "train")


def test_images_beside_sub_folders_are_taken_without_labels_and_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        source = open_images(make(tmp_path, "1.jpg", "a/2.jpg")).train
    assert names(source) == ["1.jpg", "a/2.jpg"]
    assert source.labels is None
    assert "without labels" in caplog.text


def test_hidden_files_and_other_files_are_left_out(tmp_path: Path) -> None:
    make(tmp_path, "1.jpg", "._1.jpg", ".cache/2.jpg", "notes.txt", "jpg", "empty/readme.md")
    assert names(open_images(tmp_path).train) == ["1.jpg"]


def test_links_to_folders_are_followed_and_circles_are_not(tmp_path: Path) -> None:
    make(tmp_path, "elsewhere/1.jpg", "data/a/1.jpg")
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "a" / "up").symlink_to(tmp_path / "data")
    assert names(open_images(tmp_path / "data").train) == ["a/1.jpg", "b/1.jpg"]


def test_a_missing_path_a_file_and_a_folder_without_images_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no .*nowhere"):
        open_images(tmp_path / "nowhere")
    with pytest.raises(UserError, match="it has no files"):
        open_images(tmp_path)
    make(tmp_path, "a.txt", "b.TXT", "c.csv", "d")
    with pytest.raises(UserError, match=r"found 4 files with endings \.txt, .*wanted \.jpg"):
        open_images(tmp_path)
    with pytest.raises(UserError, match=r"a\.txt is a file"):
        open_images(tmp_path / "a.txt")


def test_an_empty_train_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(UserError, match=r"no images in .*train"):
        open_images(tmp_path)


@given(counts=st.lists(st.integers(1, 9), min_size=1, max_size=5), count=st.integers(1, 10))
def test_first_per_class_keeps_the_first_files_of_each_class(counts: list[int], count: int) -> None:
    source = labelled(counts).first_per_class(count)
    wanted = [f"{label}/{i:03}.png" for label, n in enumerate(counts) for i in range(min(n, count))]
    assert names(source) == wanted
    assert source.labels == tuple(int(name[0]) for name in wanted)
    assert len(source.classes) == len(counts)


def test_first_per_class_needs_labels_and_a_positive_count() -> None:
    with pytest.raises(UserError, match="no labels"):
        Source(Path("root"), (Path("1.jpg"),)).first_per_class(5)
    with pytest.raises(UserError, match="at least 1"):
        labelled([2]).first_per_class(0)


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=5), fraction=st.floats(0.01, 0.99))
def test_a_holdout_parts_every_class_and_loses_nothing(counts: list[int], fraction: float) -> None:
    source = labelled(counts)
    bank, queries = source.split_holdout(fraction)
    assert sorted([*bank.paths, *queries.paths]) == list(source.paths)
    assert bank.labels is not None
    assert queries.labels is not None
    for label, count in enumerate(counts):
        held = queries.labels.count(label)
        assert bank.labels.count(label) == count - held
        assert held < count
        assert abs(held - count * fraction) <= 1
        assert held >= 1 or count == 1


def test_a_holdout_is_evenly_spaced_in_file_order() -> None:
    unlabelled = Source(Path("root"), tuple(Path(f"{i:02}.png") for i in range(20)))
    _, queries = unlabelled.split_holdout(0.2)
    assert names(queries) == ["02.png", "07.png", "12.png", "17.png"]
    assert queries.labels is None


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5])
def test_an_impossible_holdout_is_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        labelled([3]).split_holdout(fraction)


def test_statistics_are_those_of_imagenet_in_colour_and_in_grey() -> None:
    assert (DataConfig().mean, DataConfig().std) == (IMAGENET_MEAN, IMAGENET_STD)
    grey = DataConfig(channels=1)
    assert len(grey.mean) == len(grey.std) == 1
    luma = 0.299 * IMAGENET_MEAN[0] + 0.587 * IMAGENET_MEAN[1] + 0.114 * IMAGENET_MEAN[2]
    assert grey.mean[0] == pytest.approx(luma, abs=1e-3)
    # A config that was written out and read back with one channel, too.
    assert DataConfig(**{**DataConfig().model_dump(mode="json"), "channels": 1}) == grey
    assert DataConfig(**grey.model_dump(mode="json")) == grey
    assert DataConfig(channels=1, mean=(0.1,)).mean == (0.1,)


def test_one_value_serves_all_channels_but_a_wrong_number_is_refused() -> None:
    assert DataConfig(mean=(0.5,), std=(0.5,)).mean == (0.5,)
    with pytest.raises(ValidationError, match="mean has 2 values for 3 channels"):
        DataConfig(mean=(0.5, 0.5))
    with pytest.raises(ValidationError, match="must be above 0"):
        DataConfig(std=(0.0,))
    with pytest.raises(ValidationError):
        DataConfig(per_class=0)


@pytest.mark.parametrize("channels", [-1, 0, 2, 4])
def test_channels_other_than_colour_and_grey_are_refused_in_the_config(channels: int) -> None:
    wanted = f"images with {channels} channels are not supported; use 3 or 1"
    with pytest.raises(ValidationError, match=wanted) as caught:
        DataConfig(channels=channels)
    assert caught.value.error_count() == 1
