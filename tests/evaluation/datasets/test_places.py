"""Places205 on made-up files in the official layout."""

from pathlib import Path

import pytest
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.datasets.places import Places205
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.linear_cached import LinearCached

OFFICIAL = ("trainvalsplit_places205", "data/vision/torralba/deeplearning/images256")
TRAIN = (("a/abbey/1.jpg", 0), ("z/yard/2.jpg", 204), ("a/abbey/0.jpg", 0), ("b/bar/5.jpg", 12))
VAL = (("z/yard/3.jpg", 204), ("a/abbey/4.jpg", 0))


def write(root: Path, lists: str, images: str) -> None:
    (root / lists).mkdir(parents=True, exist_ok=True)
    for split, rows in (("train", TRAIN), ("val", VAL)):
        lines = "".join(f"{name} {label}\n" for name, label in rows)
        (root / lists / f"{split}_places205.csv").write_text(lines)
        for name, label in rows:
            file = root / images / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 36), (label, 60, 200 - label // 2)).save(file)


@pytest.mark.parametrize(("lists", "images"), [OFFICIAL, ("", "images256"), ("", "")])
def test_the_lists_decide_the_images_their_order_and_their_classes(
    tmp_path: Path, lists: str, images: str
) -> None:
    write(tmp_path, lists, images)
    Image.new("RGB", (4, 4)).save(tmp_path / images / "a/abbey/not-listed.jpg")
    data = Places205().open(tmp_path)
    for source, rows in ((data.train, TRAIN), (data.test, VAL)):
        assert source.labels is not None
        found = [(source.name(i), source.classes[label]) for i, label in enumerate(source.labels)]
        assert found == [(name, str(label)) for name, label in rows]
    assert data.train.classes == data.test.classes == ("0", "12", "204")
    assert list(data.sources) == ["train", "val"]


def test_the_probe_of_the_paper_runs_on_them(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    write(tmp_path, *OFFICIAL)
    measures = LinearCached(epochs=2).measure(model, Places205().open(tmp_path), extractor)
    assert measures.details["training"]["images"] == len(TRAIN)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("val_places205.csv", None, r"val_places205\.csv is missing in .*; wanted train_places205"),
        ("val_places205.csv", "", r"names no images; download"),
        ("train_places205.csv", "a/abbey/1.jpg 205\n", r"has the class 205, wanted 0 to 204"),
        ("train_places205.csv", "a/abbey/1.jpg,0\n", r"line 1 of .* has 1 columns, wanted 2"),
        ("val_places205.csv", "z/gone.jpg 3\n", r"1 of 1 val images are missing in .*z/gone"),
    ],
)
def test_a_missing_or_wrong_list_is_one_line(
    tmp_path: Path, file: str, text: str | None, says: str
) -> None:
    write(tmp_path, *OFFICIAL)
    changed = tmp_path / OFFICIAL[0] / file
    if text is None:
        changed.unlink()
    else:
        changed.write_text(text)
    with pytest.raises(UserError, match=says) as fault:
        Places205().open(tmp_path)
    assert "\n" not in str(fault.value)
