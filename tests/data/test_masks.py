"""Values of masks become classes, in the order of the values."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from attmask.data.config import DataConfig
from attmask.data.decode import open_picture
from attmask.data.masks import IGNORED, MasksConfig, PixelClasses, open_masked
from attmask.errors import UserError
from tests.data.test_mask_files import write
from tests.real_data import FOLDER, needs


def data_set(root: Path, *masks: list[int], split: str = "train") -> Path:
    """Images of one row whose masks have these values."""
    for number, values in enumerate(masks):
        write(root / f"images/{split}/{number}.png", np.zeros((1, len(values), 3), np.uint8))
        dtype = np.uint8 if max(values) < 256 else np.uint16
        write(root / f"masks/{split}/{number}.png", np.array([values], dtype))
    return root


def refusal(data: Path, config: MasksConfig | None = None) -> str:
    with pytest.raises(UserError) as caught:
        open_masked(data, config or MasksConfig())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_values_with_gaps_become_consecutive_classes(tmp_path: Path) -> None:
    opened = open_masked(data_set(tmp_path, [7, 0], [3, 255]), MasksConfig())["train"]
    assert opened.classes.values == (0, 3, 7)
    assert opened.classes.names == ("0", "3", "7")
    assert opened.read(0, (2, 1)).tolist() == [[2, 0]]
    assert opened.read(1, (2, 1)).tolist() == [[1, IGNORED]]


def test_values_below_the_first_class_have_no_class(tmp_path: Path) -> None:
    config = MasksConfig(first=1, classes=150)
    opened = open_masked(data_set(tmp_path, [0, 1, 2, 150]), config)["train"]
    assert len(opened.classes) == 150
    assert opened.read(0, (4, 1)).tolist() == [[IGNORED, 0, 1, 149]]


def test_masks_need_not_be_read_where_the_number_of_classes_is_known(tmp_path: Path) -> None:
    data_set(tmp_path, [0, 1])
    (tmp_path / "masks/train/0.png").write_bytes(b"damaged")
    opened = open_masked(tmp_path, MasksConfig(classes=2))["train"]
    with pytest.raises(UserError, match=r"cannot read the mask .*0\.png"):
        opened.read(0, (2, 1))


def test_sixteen_bits_give_classes_beyond_255(tmp_path: Path) -> None:
    config = MasksConfig(ignored=(65535,))
    opened = open_masked(data_set(tmp_path, [0, 255, 40_000, 65535]), config)["train"]
    assert opened.classes.values == (0, 255, 40_000)
    assert opened.read(0, (4, 1)).tolist() == [[0, 1, 2, IGNORED]]


def test_masks_of_0_and_255_are_two_classes_once_nothing_is_ignored(tmp_path: Path) -> None:
    data_set(tmp_path, [0, 255])
    wanted = r"have the values 0, 255, of which 1 is a class; .* change masks.ignored=[255] or"
    for part in wanted.split(" .* "):
        assert part in refusal(tmp_path)
    assert open_masked(tmp_path, MasksConfig(ignored=()))["train"].classes.values == (0, 255)


def test_a_value_that_is_no_class_is_named_with_its_file(tmp_path: Path) -> None:
    data_set(tmp_path, [0, 1])
    data_set(tmp_path, [0, 9], [4, 9], split="val")
    val = open_masked(tmp_path, MasksConfig(classes=2))["val"]
    with pytest.raises(UserError, match=r"val/0\.png has the value 9, which is none of the 2"):
        val.read(0, (2, 1))
    with pytest.raises(UserError, match=r"val/1\.png has the values 4, 9, which are none"):
        val.read(1, (2, 1))
    ignoring = open_masked(tmp_path, MasksConfig(ignored=(4, 9)))["val"]
    assert ignoring.read(0, (2, 1)).tolist() == [[0, IGNORED]]


def test_a_value_that_only_held_out_masks_have_is_found_before_training(tmp_path: Path) -> None:
    data_set(tmp_path, [0, 1])
    data_set(tmp_path, [0, 1], [1, 9], split="val")
    assert "val/1.png has the value 9" in refusal(tmp_path)


def test_a_subset_keeps_images_and_masks_together(tmp_path: Path) -> None:
    opened = open_masked(data_set(tmp_path, [0, 0], [1, 1], [2, 2]), MasksConfig())["train"]
    part = opened.subset([2, 0])
    assert len(part) == 2
    assert [part.source.name(index) for index in range(2)] == ["2.png", "0.png"]
    assert part.read(0, (2, 1)).tolist() == [[2, 2]]
    assert pickle.loads(pickle.dumps(part)).read(1, (2, 1)).tolist() == [[0, 0]]


def test_classes_have_the_names_of_the_settings_or_of_the_data(tmp_path: Path) -> None:
    data_set(tmp_path, [0, 1, 3])
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    opened = open_masked(tmp_path, MasksConfig(first=1))["train"]
    assert opened.classes.names == ("cat", "dog")
    opened = open_masked(tmp_path, MasksConfig(first=1, names=("a", "b")))["train"]
    assert opened.classes.names == ("a", "b")


def test_trimaps_have_two_classes(tmp_path: Path) -> None:
    data_set(tmp_path, [1, 2, 3])
    (tmp_path / "masks").rename(tmp_path / "trimaps")
    opened = open_masked(tmp_path, MasksConfig())["train"]
    assert opened.classes.names == ("object", "background")
    assert opened.read(0, (3, 1)).tolist() == [[0, 1, IGNORED]]
    assert "two classes, object and background" in refusal(tmp_path, MasksConfig(classes=3))


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match=r"masks\.ignored has 2, which is one of the 3"):
        MasksConfig(ignored=(2,), classes=3)
    with pytest.raises(ValidationError, match="cannot have the value -1"):
        MasksConfig(ignored=(-1,))
    with pytest.raises(ValidationError, match=r"2 names for masks\.classes=3"):
        MasksConfig(names=("a", "b"), classes=3)


def test_classes_may_be_made_by_hand() -> None:
    assert len(PixelClasses(("a", "b"), (0, 1))) == 2


@needs("camvid")
def test_camvid_has_eleven_classes_and_masks_of_the_size_of_its_images() -> None:
    opened = open_masked(FOLDER / "camvid", MasksConfig(ignored=(11,)))
    assert opened["train"].classes.values == tuple(range(11))
    for images in opened.values():
        labels = images.read(0, open_picture(images.source, 0, DataConfig()).size_wh)
        assert labels.shape == (360, 480)
        assert set(np.unique(labels)) <= {IGNORED, *range(11)}


@needs("pets160")
def test_pets_are_objects_on_a_background() -> None:
    val = open_masked(FOLDER / "pets160", MasksConfig())["val"]
    labels = val.read(0, open_picture(val.source, 0, DataConfig()).size_wh)
    shares = [(labels == label).mean() for label in (0, 1, IGNORED)]
    assert min(shares) > 0.01
    assert sum(shares) == pytest.approx(1)
