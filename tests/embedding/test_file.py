from pathlib import Path

import pytest

from attmask.embedding.file import EmbeddingFile, check_out
from attmask.errors import UserError


def test_a_file_is_finished_when_it_has_a_shape() -> None:
    out = Path("a/features.npy")
    assert not EmbeddingFile(out, 3, 2, stopped_by=2).finished
    file = EmbeddingFile(out, 3, 3, (2, 24), unreadable=1)
    assert file.finished
    assert file.names == Path("a/features.npy.csv")
    assert file.unreadable_list == Path("a/features.npy.unreadable.tsv")
    assert EmbeddingFile(Path("features.parquet"), 3, 3, (3, 24)).names is None


def test_places_where_no_file_can_be_written_are_refused(tmp_path: Path) -> None:
    check_out(tmp_path / "new/folder/features.npy", tmp_path / "images.txt")
    (tmp_path / "file").touch()
    for out, images, says in (
        (tmp_path, tmp_path / "images", r"is a folder; give a file, such as .*features\.npy"),
        (tmp_path / "file/f.npy", tmp_path / "images", r"file cannot be written to; choose anoth"),
        (tmp_path / "a/f.npy", tmp_path, r"is among the images of .*; choose a place outside"),
    ):
        with pytest.raises(UserError, match=says):
            check_out(out, images)
