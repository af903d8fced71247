"""Names of classes: from the settings, a list, ADE20K's table, or the values."""

from pathlib import Path

import pytest

from attmask.data.class_names import list_values, names_of
from attmask.errors import UserError

TABLE = (
    "Idx\tRatio\tTrain\tVal\tName\n1\t0.1\t9\t1\twall\n2\t0.1\t9\t1\tbuilding;edifice\n"
    "3\t0.1\t9\t1\tsky, heaven\n"
)


def test_without_names_classes_are_called_by_their_values(tmp_path: Path) -> None:
    assert names_of((1, 3), tmp_path) == ("1", "3")


def test_ade20ks_table_gives_the_first_synonym_of_each_value(tmp_path: Path) -> None:
    (tmp_path / "objectInfo150.txt").write_text(TABLE)
    assert names_of((1, 2, 3), tmp_path, first=1) == ("wall", "building", "sky")
    assert names_of((1, 3), tmp_path, first=1) == ("wall", "sky")
    assert names_of((1, 4), tmp_path, first=1) == ("1", "4")


def test_a_list_names_the_classes_or_all_values(tmp_path: Path) -> None:
    (tmp_path / "objectInfo150.txt").write_text(TABLE)
    (tmp_path / "classes.txt").write_bytes("\ufeffcat\r\ndog\r\n\r\n".encode())
    assert names_of((1, 3), tmp_path) == ("cat", "dog")
    (tmp_path / "classes.txt").write_text("nothing\ncat\ncow\ndog\n")
    assert names_of((1, 3), tmp_path) == ("cat", "dog")
    assert names_of((2, 4), tmp_path, first=1) == ("cat", "dog")


def test_given_names_come_before_those_in_files(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert names_of((1, 3), tmp_path, given=("a", "b")) == ("a", "b")


def test_names_that_do_not_fit_the_classes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_text("cat\n")
    with pytest.raises(UserError, match=r"classes\.txt has 1 line for 2 classes, the values 1, 3"):
        names_of((1, 3), tmp_path)
    with pytest.raises(UserError, match=r"masks\.names has 3 names, but .* have 2 classes"):
        names_of((1, 3), tmp_path, given=("a", "b", "c"))
    (tmp_path / "classes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"cannot read .*classes\.txt as UTF-8 text"):
        names_of((1, 3), tmp_path)


def test_many_values_are_listed_in_short() -> None:
    assert list_values((4,)) == "the value 4"
    assert list_values(range(9)) == "the values 0, 1, 2, 3, 4, ..."
