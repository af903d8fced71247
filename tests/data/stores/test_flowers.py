from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.published import write_flowers
from tests.sources import labels, names

LABELS = [77, 77, 2, 10, 2, 102]
SPLITS = {"trnid": [5, 2], "valid": [4], "tstid": [6, 1, 3]}


@pytest.fixture
def flowers(tmp_path: Path) -> Path:
    return write_flowers(tmp_path / "flowers", LABELS, SPLITS)


def test_the_official_lists_name_splits_and_classes(flowers: Path) -> None:
    images = open_images(flowers)
    assert {split: names(source) for split, source in images.splits.items()} == {
        "train": ["image_00005.jpg", "image_00002.jpg"],
        "val": ["image_00004.jpg"],
        "test": ["image_00006.jpg", "image_00001.jpg", "image_00003.jpg"],
    }
    for source in images.splits.values():
        assert source.classes == ("2", "10", "77", "102"), "in numeric order, the same everywhere"
    assert [labels(source) for source in images.splits.values()] == [[0, 2], [1], [3, 2, 0]]
    assert decode(images.train, 0, DataConfig()).flat[0] == 5


def test_the_index_is_kept_and_a_changed_list_is_read_again(flowers: Path, tmp_path: Path) -> None:
    images = open_images(flowers, index=tmp_path / "run")
    assert images.found is not None
    assert set(images.found.watched) == {"", "jpg", "imagelabels.mat", "setid.mat"}
    images.found.save(tmp_path / "run")
    again = open_images(flowers, index=tmp_path / "run")
    assert again.found is None
    assert names(again.splits["test"]) == names(images.splits["test"])
    assert labels(again.train) == labels(images.train)
    ids = {"trnid": [1], "valid": [2], "tstid": [3]}
    savemat(flowers / "setid.mat", {key: np.array([value]) for key, value in ids.items()})
    assert names(open_images(flowers, index=tmp_path / "run").train) == ["image_00001.jpg"]


def changed(file: str, **arrays: object) -> Callable[[Path], None]:
    return lambda folder: savemat(folder / file, arrays)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "setid.mat").unlink(), r"has no setid\.mat; Flowers-102 consists of jpg/"),
        (lambda f: (f / "imagelabels.mat").unlink(), r"has no imagelabels\.mat; Flowers-102"),
        (lambda f: (f / "jpg").rename(f / "png"), "has no jpg; Flowers-102 consists of"),
        (lambda f: (f / "jpg" / "image_00003.jpg").unlink(), r"has no image_00003\.jpg; unpack"),
        (
            lambda f: [(f / "jpg" / f"image_0000{n}.jpg").unlink() for n in (6, 1, 3)],
            r"has no image_00006\.jpg and 2 more of tstid; unpack",
        ),
        (lambda f: (f / "setid.mat").write_bytes(b"x" * 200), r"setid\.mat is damaged"),
        (lambda f: (f / "setid.mat").write_bytes(b""), r"setid\.mat is damaged"),
        (changed("imagelabels.mat", other=[1]), r"has no labels; wanted labels"),
        (changed("setid.mat", trnid=[1], valid=[2]), "has no tstid; wanted trnid, valid, tstid"),
        (changed("imagelabels.mat", labels=[1.5]), "labels of .* is not a list of whole numbers"),
        (changed("imagelabels.mat", labels=["x"]), "is not a list of whole numbers"),
        (
            changed("setid.mat", trnid=[1], valid=[2], tstid=[7]),
            "images 7 to 7 in tstid, but imagelabels.mat has 6 labels",
        ),
        (
            changed("imagelabels.mat", labels=np.zeros((1, 2_000_000), dtype=np.uint8)),
            r"imagelabels\.mat is damaged",
        ),
    ],
)
def test_what_is_missing_or_damaged_is_one_line(
    flowers: Path, damage: Callable[[Path], object], says: str
) -> None:
    damage(flowers)
    with pytest.raises(UserError, match=says) as told:
        open_images(flowers)
    assert "\n" not in str(told.value)
