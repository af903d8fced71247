import os
from pathlib import Path

import pytest

from attmask.data.sources import open_images
from attmask.data.stores.files import Files
from tests.sources import png


def test_a_file_is_read_as_it_is_and_a_missing_one_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "1.png").write_bytes(png(7))
    source = open_images(tmp_path).train
    assert source.read(0) == png(7)
    assert source.store.shards == ()
    (tmp_path / "1.png").unlink()
    with pytest.raises(FileNotFoundError):
        source.read(0)


def test_an_absolute_name_stays_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "far.png").write_bytes(png(1))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "near.png").write_bytes(png(2))
    files = Files(tmp_path / "data", (str(tmp_path / "far.png"), "near.png", "../far.png"))
    assert [files.read(row) for row in range(3)] == [png(1), png(2), png(1)]
    assert files.name(0) == str(tmp_path / "far.png")


def test_a_pipe_that_is_called_a_picture_is_an_empty_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.jpg")
    assert Files(tmp_path, ["a.jpg"]).read(0) == b""
