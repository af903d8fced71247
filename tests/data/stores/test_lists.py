from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.sources import labels, names, png


def written(root: Path, name: str, text: str) -> Path:
    (root / name).write_text(text, encoding="utf-8")
    return root / name


@pytest.mark.parametrize("ending", ["txt", "csv", "tsv", "parquet"])
def test_every_kind_of_list_gives_the_same_images(tmp_path: Path, ending: str) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "ein Bild.png").write_bytes(png(1))
    far = str(tmp_path / "far.png")
    rows = [("pictures/ein Bild.png", "dog"), (far, "cat"), ("gone.png", "dog")]
    file = tmp_path / f"list.{ending}"
    if ending == "parquet":
        columns = {"path": [path for path, _ in rows], "label": [label for _, label in rows]}
        pq.write_table(pa.table(columns), file)
    else:
        separator = "," if ending == "csv" else "\t"
        header = "" if ending == "txt" else separator.join(("path", "label")) + "\n"
        file.write_text(header + "".join(f"{p}{separator}{label}\n" for p, label in rows))
    source = open_images(file).train
    assert names(source) == ["pictures/ein Bild.png", far, "gone.png"]
    assert (labels(source), source.classes) == ([1, 0, 1], ("cat", "dog"))
    assert source.read(0) == png(1)
    assert source.place(1) == far
    assert source.place(2) == str(tmp_path / "gone.png")
    with pytest.raises(FileNotFoundError):
        source.read(2)


@given(
    rows=st.lists(
        st.tuples(st.text(st.characters(categories=("L", "N")), min_size=1), st.integers(-3, 1200)),
        min_size=1,
    )
)
def test_numbers_keep_their_order_as_classes(
    rows: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = "".join(f"{name} {label}\n" for name, label in rows)
    source = open_images(written(tmp_path_factory.mktemp("list"), "list.txt", text)).train
    assert names(source) == [name for name, _ in rows]
    assert source.classes == tuple(map(str, sorted({label for _, label in rows})))
    assert source.labels is not None
    assert [int(source.classes[i]) for i in source.labels] == [label for _, label in rows]


def test_empty_lines_and_comments_are_left_out_and_spaces_belong_to_a_path(tmp_path: Path) -> None:
    text = "# by hand\n\nmy cat 1.jpg\n   \nmy dog.jpg  \r\n# end"
    source = open_images(written(tmp_path, "list.txt", text)).train
    assert names(source) == ["my cat 1.jpg", "my dog.jpg"]
    assert source.labels is None


def test_a_number_after_a_space_is_a_label_only_where_every_line_has_one(tmp_path: Path) -> None:
    labelled = open_images(written(tmp_path, "a.txt", "my cat.jpg 1\nb.jpg 0\n")).train
    assert (names(labelled), labels(labelled)) == (["my cat.jpg", "b.jpg"], [1, 0])
    plain = open_images(written(tmp_path, "b.txt", "scan 1\nscan b\n")).train
    assert (names(plain), labels(plain)) == (["scan 1", "scan b"], None)


@pytest.mark.parametrize("column", ["path", "file", "filename", "image", " Image "])
@pytest.mark.parametrize("label", ["label", "class", "Target"])
def test_columns_are_known_by_their_names_in_any_place(
    tmp_path: Path, column: str, label: str
) -> None:
    text = f'width,{label},{column}\n3,"cat, small","a,1.jpg"\n\n4,dog,b.jpg\n'
    source = open_images(written(tmp_path, "list.csv", text)).train
    assert names(source) == ["a,1.jpg", "b.jpg"]
    assert source.classes == ("cat, small", "dog")


def test_a_list_saved_by_a_spreadsheet_is_read(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_bytes("\ufeffpath,label\r\né.jpg,1\r\n".encode())
    assert names(open_images(tmp_path / "list.csv").train) == ["é.jpg"]


@pytest.mark.parametrize(("first", "second"), [("val", "test"), ("validation", "test")])
def test_a_split_column_parts_train_val_and_test(tmp_path: Path, first: str, second: str) -> None:
    text = f"path,label,split\n1.jpg,b,train\n2.jpg,a,Training\n3.jpg,b,{first}\n4.jpg,a,{second}\n"
    images = open_images(written(tmp_path, "list.csv", text))
    assert images.val is not None
    assert (names(images.train), labels(images.train)) == (["1.jpg", "2.jpg"], [1, 0])
    assert (names(images.val), labels(images.val)) == (["3.jpg"], [1])
    assert images.test is not None
    assert (names(images.test), labels(images.test)) == (["4.jpg"], [0])
    alone = open_images(written(tmp_path, "two.csv", text.replace(f"3.jpg,b,{first}\n", "")))
    assert list(alone.splits) == ["train", "test"]
    assert alone.held_out is alone.test


def test_a_column_of_labels_without_any_is_no_labels(tmp_path: Path) -> None:
    text = "path,label\n1.jpg,\n2.jpg,\n"
    assert open_images(written(tmp_path, "list.csv", text)).train.labels is None


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.csv", "url,width\nx,1\n", "has the columns url, width; wanted one of path, file"),
        ("a.csv", "", "has the columns none; wanted one of path"),
        ("a.csv", "path\n", "lists no images"),
        ("a.txt", "\n# nothing\n", "lists no images"),
        ("a.txt", "1.jpg\tcat\n\n2.jpg\n", "line 3 of .*a.txt has no label, others have one"),
        ("a.csv", "path,label\n1.jpg,cat\n2.jpg,\n", "line 3 of .*a.csv has no label"),
        ("a.csv", "path,label\n1.jpg\n", "line 2 of .*a.csv has 1 columns, wanted 2"),
        ("a.csv", "path,label\n,cat\n", "line 2 of .*a.csv has no path"),
        ("a.csv", "path,split\n1.jpg,fold1\n", "line 2 of .*has the split 'fold1'; wanted train"),
    ],
)
def test_a_faulty_list_is_refused_in_one_line(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint) as caught:
        open_images(written(tmp_path, name, text))
    assert "\n" not in str(caught.value)


def test_a_list_without_train_or_with_a_new_class_in_val_is_read_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone = open_images(written(tmp_path, "a.csv", "path,split\n1.jpg,val\n2.jpg,test\n"))
    assert {name: names(source) for name, source in alone.splits.items()} == {
        "train": ["1.jpg"],
        "test": ["2.jpg"],
    }
    assert "has no train split: the images of val are used as train" in caplog.text
    images = open_images(written(tmp_path, "b.csv", "path,label,split\n1,b,train\n2,a,dev\n"))
    assert images.val is not None
    assert (labels(images.val), images.val.classes) == ([1], ("b", "a"))
    assert "val has a class that train does not have: a" in caplog.text


@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_text_that_is_not_utf_8_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("path\ncafé.jpg\n".encode("latin-1"))
    with pytest.raises(UserError, match=f"{name} is not UTF-8 text.*save it as UTF-8"):
        open_images(tmp_path / name)


def test_a_parquet_file_that_is_none_or_has_no_paths_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(UserError, match=r"a\.parquet is not a parquet file"):
        open_images(tmp_path / "a.parquet")
    pq.write_table(pa.table({"url": ["x"], "n": [1]}), tmp_path / "b.parquet")
    with pytest.raises(UserError, match="has the columns url, n; wanted one of path"):
        open_images(tmp_path / "b.parquet")


def test_numbers_and_missing_labels_of_a_parquet_list(tmp_path: Path) -> None:
    table = pa.table({"file": ["b.jpg", "a.jpg"], "class": [10, 9], "split": ["train", "train"]})
    pq.write_table(table, tmp_path / "a.parquet")
    source = open_images(tmp_path / "a.parquet").train
    assert (names(source), labels(source)) == (["b.jpg", "a.jpg"], [1, 0])
    pq.write_table(
        pa.table({"file": ["b.jpg", "a.jpg"], "class": [1, None]}), tmp_path / "b.parquet"
    )
    with pytest.raises(UserError, match=r"line 2 of .* has no label"):
        open_images(tmp_path / "b.parquet")
