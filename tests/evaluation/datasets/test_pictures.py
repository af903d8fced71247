import shutil
from pathlib import Path

import numpy as np
import pytest

from attmask.data.images import Images
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.datasets import pictures
from attmask.evaluation.datasets.pictures import Pictures
from attmask.evaluation.task import Data, DataSet


def names(source: Source) -> list[str]:
    return [source.name(i) for i in range(len(source))]


def test_it_is_a_data_set_with_one_part(scenes: Path) -> None:
    dataset: DataSet[Data] = Pictures()
    opened = dataset.open(scenes)
    assert list(opened.sources) == ["val"]
    assert "train/ and val/" in dataset.layout
    assert list(Pictures().open(scenes / "train").sources) == ["train"]


def test_images_to_validate_on_are_taken_where_there_are_any(scenes: Path) -> None:
    found = open_images(scenes)
    assert found.val is not None
    assert names(Pictures().open(scenes).images) == names(found.val)
    assert names(Pictures().open(scenes / "train").images) == names(found.train)


def test_a_split_is_shown_by_its_name(scenes: Path, tmp_path: Path) -> None:
    shutil.copytree(scenes / "train", tmp_path / "train")
    shutil.copytree(scenes / "val", tmp_path / "test")
    for split, shown in (("auto", "test"), ("test", "test"), ("train", "train")):
        opened = Pictures.model_validate({"split": split}).open(tmp_path)
        assert list(opened.sources) == [shown]
        assert names(opened.images) == names(open_images(tmp_path).splits[shown])
    with pytest.raises(UserError, match=r"there is no split val in .*, only train, test; choose"):
        Pictures(split="val").open(tmp_path)


def test_images_need_no_labels(scenes: Path, tmp_path: Path) -> None:
    for i, file in enumerate(sorted(scenes.glob("val/*/*"))[:7]):
        shutil.copy(file, tmp_path / f"{i}{file.suffix}")
    images = Pictures().open(tmp_path).images
    assert (len(images), images.labels) == (7, None)


@pytest.mark.parametrize(("most", "kept"), [(1, 1), (5, 5), (20, 20), (21, 20), (None, 20)])
def test_at_most_so_many_are_taken_evenly_spread(scenes: Path, most: int | None, kept: int) -> None:
    everything = names(Pictures(max_images=None).open(scenes).images)
    chosen = names(Pictures(max_images=most).open(scenes).images)
    assert chosen == everything[:: 20 // kept]


def test_what_is_not_there_is_named(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"there is no .*nowhere; give a folder"):
        Pictures().open(tmp_path / "nowhere")
    none = open_images(scenes).train.subset(np.arange(0))
    monkeypatch.setattr(pictures, "open_images", lambda _, **_more: Images(none))
    with pytest.raises(UserError, match="has no images; wanted any images that"):
        Pictures().open(tmp_path)
