from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.listed import files_source, folder_with, require_images, table


def test_labels_are_places_in_the_classes_given(tmp_path: Path) -> None:
    source = files_source(tmp_path, ["x/1.jpg", "2.jpg"], ["b", "a"], ["a", "b", "c"])
    assert source.labels is not None
    assert source.labels.tolist() == [1, 0]
    assert source.classes == ("a", "b", "c")
    assert source.place(0) == str(tmp_path / "x" / "1.jpg")


def test_a_list_is_cut_at_spaces_without_its_header(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("head of it\n1  2\n\n 3\t4 \n")
    assert list(table(tmp_path / "list.txt", 2, skip=1)) == [["1", "2"], ["3", "4"]]


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"1 2\n1 2 3\n", "line 2 of .* has 3 columns, wanted 2"), (b"\xff\xfe 1\n", "cannot read")],
)
def test_a_damaged_list_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "list.txt").write_bytes(content)
    with pytest.raises(UserError, match=says):
        list(table(tmp_path / "list.txt", 2))


def test_a_missing_list_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot read"):
        list(table(tmp_path / "none.txt", 2))


def test_the_folder_itself_comes_before_those_below(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "x").touch()
    assert folder_with(tmp_path, "x", ["other", "below"], "x") == tmp_path / "below"
    (tmp_path / "x").touch()
    assert folder_with(tmp_path, "x", ["below"], "x") == tmp_path


def test_missing_pictures_are_counted_by_part(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    require_images(tmp_path, {"images": ["a"]}, "a")
    with pytest.raises(UserError, match=r"1 of 2 images and 2 of 2 others are missing .* is b;"):
        require_images(tmp_path, {"images": ["a", "b"], "others": ["c", "d"]}, "a and b")
