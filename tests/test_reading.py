import os
from pathlib import Path

import pytest

from attmask.reading import check_regular, read_regular


def test_a_regular_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"four")
    assert read_regular(tmp_path / "x") == read_regular(tmp_path / "x", 4) == b"four"
    with pytest.raises(OSError, match="x has 4 bytes, and 3 are the most"):
        read_regular(tmp_path / "x", 3)


def test_what_may_have_no_end_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(OSError, match=f"{name} is not a regular file"):
            read_regular(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        check_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "nothing")
