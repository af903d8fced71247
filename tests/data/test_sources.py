from pathlib import Path

import numpy as np
import pytest

from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.sources import names, png, touch, write_tar


def test_what_data_is_decides_how_it_is_opened(tmp_path: Path) -> None:
    root = tmp_path / "folder"
    root.mkdir()
    (root / "1.png").write_bytes(png(1))
    (tmp_path / "list.txt").write_text("folder/1.png\n")
    write_tar(tmp_path / "one.tar", {"1.png": png(1)})
    write_tar(tmp_path / "shards" / "a.tar", {"1.png": png(1)})
    np.save(tmp_path / "array.npy", np.zeros((1, 4, 4), np.uint8))
    opened = {
        name: names(open_images(tmp_path / name).train)
        for name in ("folder", "list.txt", "one.tar", "shards", "array.npy")
    }
    assert opened == {
        "folder": ["1.png"],
        "list.txt": ["folder/1.png"],
        "one.tar": ["one.tar/1.png"],
        "shards": ["a.tar/1.png"],
        "array.npy": ["array.npy[0]"],
    }


@pytest.mark.parametrize("name", ["thesis.docx", "1.jpg", "none"])
def test_a_file_of_no_known_kind_is_refused_with_what_is_accepted(
    tmp_path: Path, name: str
) -> None:
    wanted = f"{name} is a file of an unknown kind; give a folder of images, a list .*tar.*npz"
    with pytest.raises(UserError, match=wanted) as caught:
        open_images(touch(tmp_path, name) / name)
    assert "\n" not in str(caught.value)


def test_archives_beside_the_folders_they_were_unpacked_to_are_ignored(tmp_path: Path) -> None:
    touch(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "train/a.tar", "train.tar")
    assert names(open_images(tmp_path).train) == ["a/1.jpg", "b/1.jpg"]


def test_an_empty_place_is_refused_and_a_dot_is_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "1.png").write_bytes(png(1))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"is empty, perhaps an unset variable.*\. is the current"):
        open_images("")
    for here in (".", Path()):
        assert names(open_images(here).train) == ["1.png"]
