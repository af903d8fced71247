import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.datasets.backgrounds import KINDS, VARIANTS, Backgrounds, read_mapping
from tests.real_data import FOLDER, needs


def put(folder: Path, *names: str) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8, 3), number, dtype=np.uint8)).save(folder / name)


def test_the_published_layout_is_read(tmp_path: Path) -> None:
    for folder in VARIANTS.values():
        put(tmp_path, f"{folder}/val/00_dog/a.png", f"{folder}/val/08_fish/b.png")
    put(tmp_path, "original/train/01_bird/c.png", "fg_mask/val/00_dog/x.png")
    (tmp_path / "in_to_in9.json").write_text(json.dumps({"1": 8, "0": -1, "2": 0}))
    data = Backgrounds().open(tmp_path)
    assert list(data.tests) == list(VARIANTS)
    assert list(data.sources) == [*VARIANTS, "train"]
    assert data.missing == []
    assert data.kind_of == (-1, 8, 0)
    for source in data.tests.values():
        assert source.labels is not None
        assert source.labels.tolist() == [0, 8]  # by the name, though there are two folders only
        assert tuple(source.classes) == KINDS
    assert data.train is not None
    assert data.train.labels is not None
    assert data.train.labels.tolist() == [1]


def test_variants_that_are_not_there_are_missing(tmp_path: Path) -> None:
    put(tmp_path, "mixed_same/val/03_reptile/a.png", "mixed_rand/val/03_reptile/a.png")
    data = Backgrounds().open(tmp_path)
    assert list(data.tests) == ["mixed same", "mixed random"]
    assert "original" in data.missing
    assert len(data.missing) == 6
    assert data.train is None
    assert data.kind_of is None


def test_a_folder_with_val_alone_is_the_original(tmp_path: Path) -> None:
    put(tmp_path, "val/04/a.png", "train/05/a.png")
    assert list(Backgrounds().open(tmp_path).sources) == ["original", "train"]
    put(tmp_path, "mixed_next/val/04/a.png")  # now val/ is something else
    assert list(Backgrounds().open(tmp_path).sources) == ["mixed next"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("somewhere/a.png", "has no variant of ImageNet-9; wanted original/val/00_dog"),
        ("original/val/n01440764/a.png", "has a folder n01440764"),
        ("original/val/09_tree/a.png", "has a folder 09_tree; wanted only 00_dog to 08_fish"),
        ("original/val/a.png", "are not in folders 00_dog"),
    ],
)
def test_another_layout_is_refused_in_one_line(name: str, says: str, tmp_path: Path) -> None:
    put(tmp_path, name)
    with pytest.raises(UserError, match=says) as caught:
        Backgrounds().open(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["{", "[]", "{}", "3", '{"0": 9}', '{"0": -2}', '{"1": 0}', '{"0": "dog"}', '{"0": true}'],
)
def test_what_is_no_mapping_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UserError, match="not a mapping of classes to kinds"):
        read_mapping(tmp_path / "x.json")


def test_a_mapping_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    put(tmp_path, "val/04/a.png")
    with pytest.raises(UserError, match=r"cannot read .*nowhere"):
        Backgrounds(mapping=tmp_path / "nowhere.json").open(tmp_path)


@needs("in9_val128")
def test_the_official_mapping_leaves_630_classes_out() -> None:
    data = Backgrounds().open(FOLDER / "in9_val128")
    assert data.kind_of is not None
    assert (len(data.kind_of), data.kind_of.count(-1)) == (1000, 630)
    source = data.tests["original"]
    assert source.labels is not None
    assert len(source) == 1850
    # The files are named by their class of ImageNet: name and folder must agree.
    classes = [int(Path(source.name(i)).name.split("_")[0]) for i in range(len(source))]
    assert [data.kind_of[c] for c in classes] == source.labels.tolist()
