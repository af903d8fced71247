import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.datasets.landmarks import Landmarks, read_truth
from attmask.evaluation.metrics.ranking import Truth
from tests.real_data import FOLDER, needs

PLAIN: dict[str, Any] = {
    "imlist": ["a", "b", "c"],
    "qimlist": ["q"],
    "gnd": [{"bbx": [1, 2.5, 30, 40], "easy": [2], "hard": [0], "junk": []}],
}


def write(folder: Path, truth: object, name: str = "roxford5k") -> Path:
    (folder / "jpg").mkdir(parents=True, exist_ok=True)
    for picture in ("a", "b", "c", "q"):
        Image.new("RGB", (4, 4)).save(folder / "jpg" / f"{picture}.jpg")
    file = folder / f"gnd_{name}.pkl"
    file.write_bytes(pickle.dumps(truth))
    return file


class Crafted:
    """What a crafted file would do when it is opened."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@needs("retrieval_gnd")
@pytest.mark.parametrize(
    ("name", "database", "totals"),
    [("roxford5k", 4993, (3029, 2497, 1356)), ("rparis6k", 6322, (6874, 10350, 7153))],
)
def test_the_official_files_are_read(
    name: str, database: int, totals: tuple[int, int, int]
) -> None:
    truth = read_truth(FOLDER / "retrieval_gnd" / f"gnd_{name}.pkl")
    assert (len(truth.database), len(truth.queries)) == (database, 70)
    found = [sum(len(getattr(t, key)) for t in truth.truths) for key in ("easy", "hard", "junk")]
    assert tuple(found) == totals
    assert len(truth.boxes) == 70


@needs("retrieval_gnd")
def test_official_files_without_pictures_say_what_is_missing(tmp_path: Path) -> None:
    says = (
        "4,993 of 4,993 database images and 70 of 70 query images are missing in "
        f"{FOLDER / 'retrieval_gnd' / 'jpg'}, the first is ashmolean_000283.jpg; "
        "wanted gnd_roxford5k.pkl and jpg/*.jpg"
    )
    with pytest.raises(UserError, match=re.escape(says)):
        Landmarks().open(FOLDER / "retrieval_gnd")


@pytest.mark.parametrize("below", ["", "rparis6k"])
def test_a_set_is_found_in_its_folder_or_one_above(tmp_path: Path, below: str) -> None:
    write(tmp_path / below, PLAIN, "rparis6k")
    data = Landmarks(name="rparis6k").open(tmp_path)
    assert [data.database.name(i) for i in range(3)] == ["a.jpg", "b.jpg", "c.jpg"]
    assert data.queries.place(0) == str(tmp_path / below / "jpg" / "q.jpg")
    assert data.boxes == ((1.0, 2.5, 30.0, 40.0),)
    assert data.truths == (Truth(easy=(2,), hard=(0,)),)
    assert data.database.labels is not None
    assert data.database.labels.tolist() == [0, 1, 2]
    assert list(data.sources) == ["queries", "database"]


def test_a_crafted_file_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    trap = tmp_path / "made"
    file = write(tmp_path, {**PLAIN, "extra": Crafted(trap)})
    with pytest.raises(UserError, match="cannot be read as plain data: it would load posix"):
        read_truth(file)
    assert not trap.exists()
    pickle.loads(file.read_bytes())  # the trap is one
    assert trap.exists()


def test_a_missing_picture_is_named(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    (tmp_path / "jpg" / "b.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of 3 database images are missing .* is b\.jpg"):
        Landmarks().open(tmp_path)


def test_a_missing_ground_truth_names_the_layout(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"gnd_rparis6k\.pkl is missing in .*; wanted .* a folder rparis6k"
    ):
        Landmarks(name="rparis6k").open(tmp_path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gnd": []}, "0 rows for 1 queries"),
        ({"imlist": []}, "imlist has no names"),
        ({"imlist": [1, 2, 3]}, "imlist has no names"),
        ({"imlist": ["a", "a", "c"]}, "names an image twice"),
        ({"gnd": [{**PLAIN["gnd"][0], "junk": [3]}]}, "beyond the 3 images of the database"),
        ({"gnd": [{**PLAIN["gnd"][0], "junk": [-1]}]}, "beyond the 3 images of the database"),
        ({"gnd": [{**PLAIN["gnd"][0], "bbx": [5, 0, 5, 9]}]}, "is not valid"),
        ({"gnd": [{**PLAIN["gnd"][0], "bbx": [5, 0, float("nan"), 9]}]}, "is not valid"),
        ({"gnd": [{"easy": []}]}, "'hard'"),
        ({"gnd": None}, "not a ground truth"),
    ],
)
def test_what_is_not_a_ground_truth_is_refused(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    with pytest.raises(UserError, match=says):
        read_truth(write(tmp_path, PLAIN | change))


@pytest.mark.parametrize("content", [b"", b"\x80\x04", b"no pickle at all", pickle.dumps([1, 2])])
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "gnd_roxford5k.pkl").write_bytes(content)
    with pytest.raises(UserError, match="download the official file again") as refused:
        read_truth(tmp_path / "gnd_roxford5k.pkl")
    assert "\n" not in str(refused.value)
