import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.datasets.galleries import CUB, SOP, Cars, Folder, InShop
from tests.real_data import FOLDER, needs


def draw(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(root / name)


def named(source: Source | None) -> list[tuple[str, str]]:
    """The name and the class of every image."""
    assert source is not None
    assert source.labels is not None
    return [(source.name(i), source.classes[label]) for i, label in enumerate(source.labels)]


def write_cub(root: Path) -> None:
    names = ["100.Owl/a.jpg", "101.Pelican/b.jpg", "101.Pelican/c.jpg", "200.Wren/d.jpg"]
    draw(root / "images", *names)
    lines = "".join(f"{i} {name}\n" for i, name in enumerate(names, start=1))
    (root / "images.txt").write_text(lines)
    # In another order than the names: the numbers belong together, not the lines.
    (root / "image_class_labels.txt").write_text("4 200\n3 101\n2 101\n1 100\n")


@pytest.mark.parametrize("below", ["", "CUB_200_2011"])
def test_birds_are_those_of_the_classes_from_101(tmp_path: Path, below: str) -> None:
    write_cub(tmp_path / below)
    data = CUB().open(tmp_path)
    assert named(data.queries) == [
        ("101.Pelican/b.jpg", "101"),
        ("101.Pelican/c.jpg", "101"),
        ("200.Wren/d.jpg", "200"),
    ]
    assert data.gallery is None
    assert list(data.sources) == ["queries"]


def test_a_bird_without_a_class_is_refused(tmp_path: Path) -> None:
    write_cub(tmp_path)
    (tmp_path / "image_class_labels.txt").write_text("1 100\n")
    with pytest.raises(UserError, match=r"image 2 of .* has no line in image_class_labels"):
        CUB().open(tmp_path)


def cars_struct(name: str, rows: list[tuple[str, int]]) -> dict[str, np.ndarray]:
    kind = [("bbox_x1", object), ("class", object), (name, object)]
    filled = np.zeros((1, len(rows)), dtype=kind)
    for i, (file, label) in enumerate(rows):
        filled[0, i] = (7, label, file)
    return {"annotations": filled}


def test_cars_are_those_of_the_classes_from_99(tmp_path: Path) -> None:
    rows = [("car_ims/1.jpg", 98), ("car_ims/2.jpg", 99), ("car_ims/3.jpg", 196)]
    draw(tmp_path, *(name for name, _ in rows))
    savemat(tmp_path / "cars_annos.mat", cars_struct("relative_im_path", rows))
    assert named(Cars().open(tmp_path).queries) == [
        ("car_ims/2.jpg", "99"),
        ("car_ims/3.jpg", "196"),
    ]


def test_cars_of_the_development_kit_are_taken_from_both_of_its_parts(tmp_path: Path) -> None:
    (tmp_path / "devkit").mkdir()
    for part, file, rows in (
        ("cars_train", "cars_train_annos", [("1.jpg", 3), ("2.jpg", 120)]),
        ("cars_test", "cars_test_annos_withlabels", [("1.jpg", 120)]),
    ):
        savemat(tmp_path / "devkit" / f"{file}.mat", cars_struct("fname", rows))
        draw(tmp_path / part, *(name for name, _ in rows))
    found = named(Cars().open(tmp_path).queries)
    assert found == [("cars_train/2.jpg", "120"), ("cars_test/1.jpg", "120")]


def test_cars_without_classes_are_refused(tmp_path: Path) -> None:
    kind = [("fname", object)]
    for file in ("cars_train_annos", "cars_test_annos_withlabels"):
        rows = np.array([[("1.jpg",)]], dtype=kind)
        savemat(tmp_path / f"{file}.mat", {"annotations": rows})
    with pytest.raises(UserError, match="has no annotations with fname and class"):
        Cars().open(tmp_path)


def test_a_damaged_matlab_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cars_annos.mat").write_bytes(b"nothing")
    with pytest.raises(UserError, match="download the official file again"):
        Cars().open(tmp_path)


def test_cars_without_scipy_say_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "cars_annos.mat").touch()
    code = (
        "import sys; sys.modules['scipy'] = sys.modules['scipy.io'] = None\n"
        "from pathlib import Path\n"
        "from attmask.evaluation.datasets.galleries import Cars\n"
        f"Cars().open(Path({str(tmp_path)!r}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "attmask.errors.UserError" in ran.stderr
    assert "pip install scipy" in ran.stderr


@pytest.mark.parametrize("below", ["", "Stanford_Online_Products"])
def test_products_are_those_of_the_test_list(tmp_path: Path, below: str) -> None:
    root = tmp_path / below
    draw(root, "sofa_final/1.JPG", "sofa_final/2.JPG", "lamp_final/3.JPG", "lamp_final/4.JPG")
    (root / "Ebay_test.txt").write_text(
        "image_id class_id super_class_id path\n"
        "1 11319 1 sofa_final/1.JPG\n"
        "2 11319 1 sofa_final/2.JPG\n"
        "3 9 2 lamp_final/3.JPG\n"
    )
    assert named(SOP().open(tmp_path).queries) == [
        ("sofa_final/1.JPG", "11319"),
        ("sofa_final/2.JPG", "11319"),
        ("lamp_final/3.JPG", "9"),
    ]


PARTITION = """5
image_name item_id evaluation_status
img/MEN/id_1/1.jpg   id_1 train
img/MEN/id_3/1.jpg   id_3 query
img/MEN/id_2/1.jpg   id_2 query
img/MEN/id_2/1.jpg   id_2 gallery
img/MEN/id_4/1.jpg   id_4 gallery
"""


@pytest.mark.parametrize(("lists", "pictures"), [("", ""), ("Eval", "Img")])
def test_clothes_have_queries_and_a_gallery_with_the_same_classes(
    tmp_path: Path, lists: str, pictures: str
) -> None:
    draw(tmp_path / pictures, *(f"img/MEN/id_{i}/1.jpg" for i in (2, 3, 4)))
    (tmp_path / lists).mkdir(exist_ok=True)
    (tmp_path / lists / "list_eval_partition.txt").write_text(PARTITION)
    data = InShop().open(tmp_path)
    assert named(data.queries) == [("img/MEN/id_3/1.jpg", "id_3"), ("img/MEN/id_2/1.jpg", "id_2")]
    assert named(data.gallery) == [("img/MEN/id_2/1.jpg", "id_2"), ("img/MEN/id_4/1.jpg", "id_4")]
    assert data.gallery is not None
    assert data.queries.classes == data.gallery.classes == ("id_2", "id_3", "id_4")
    assert list(data.sources) == ["queries", "gallery"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (PARTITION.replace("query", "queries"), "has the status queries"),
        (PARTITION.replace("query", "train"), "names no query images"),
    ],
)
def test_a_partition_that_is_not_the_official_one_is_refused(
    tmp_path: Path, wrong: str, says: str
) -> None:
    (tmp_path / "list_eval_partition.txt").write_text(wrong)
    with pytest.raises(UserError, match=says):
        InShop().open(tmp_path)


@pytest.mark.parametrize(
    ("dataset", "file"),
    [
        (CUB(), "images.txt"),
        (Cars(), "cars_train_annos.mat"),
        (SOP(), "Ebay_test.txt"),
        (InShop(), "list_eval_partition.txt"),
    ],
)
def test_a_missing_list_names_the_layout(
    tmp_path: Path, dataset: CUB | Cars | SOP | InShop, file: str
) -> None:
    with pytest.raises(UserError, match=f"{file} is missing in .*; wanted ") as refused:
        dataset.open(tmp_path)
    assert dataset.layout in str(refused.value)


def test_missing_pictures_are_counted(tmp_path: Path) -> None:
    write_cub(tmp_path)
    (tmp_path / "images" / "200.Wren" / "d.jpg").unlink()
    with pytest.raises(UserError, match=r"1 of 3 images are missing .* is 200\.Wren/d\.jpg"):
        CUB().open(tmp_path)


def test_a_list_without_test_classes_is_refused(tmp_path: Path) -> None:
    write_cub(tmp_path)
    (tmp_path / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n4 2\n")
    with pytest.raises(UserError, match="names no images of the classes 101 to 200"):
        CUB().open(tmp_path)


@pytest.mark.parametrize("part", ["val", "test", ""])
def test_any_folder_is_read_by_its_part_to_test_on(tmp_path: Path, part: str) -> None:
    draw(tmp_path / part, "a/1.png", "a/2.png", "b/3.png")
    if part:
        draw(tmp_path, "train/other/1.png")
    assert named(Folder().open(tmp_path).queries) == [
        ("a/1.png", "a"),
        ("a/2.png", "a"),
        ("b/3.png", "b"),
    ]
    few = Folder(per_class=1).open(tmp_path).queries
    assert named(few) == [("a/1.png", "a"), ("b/3.png", "b")]


def test_a_list_of_files_is_read_as_well(tmp_path: Path) -> None:
    draw(tmp_path, "1.png", "2.png", "3.png")
    (tmp_path / "list.csv").write_text(
        "path,label,split\n1.png,a,train\n2.png,a,test\n3.png,a,test\n"
    )
    found = named(Folder().open(tmp_path / "list.csv").queries)
    assert found == [("2.png", "a"), ("3.png", "a")]


def test_a_folder_without_labels_is_refused(tmp_path: Path) -> None:
    draw(tmp_path, "1.png", "2.png")
    with pytest.raises(UserError, match="have no labels; wanted val/CLASS"):
        Folder().open(tmp_path)


@needs("cub160")
def test_the_real_birds_are_the_forty_test_classes() -> None:
    found = Folder().open(FOLDER / "cub160").queries
    assert (len(found), len(found.classes)) == (800, 40)
