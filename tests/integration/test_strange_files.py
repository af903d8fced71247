"""A run over a folder of a hundred kinds of strange files: all used or listed, none in the way."""

import os
from pathlib import Path

import numpy as np
import pytest

import attmask
from attmask.data.config import DataConfig
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.sources import open_images
from attmask.errors import UserError
from tests.data.strange import saved, scene, strange_files
from tests.runs import SHORT

FILES = strange_files()
BATCH = 8  # as in SHORT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of file, what else may lie in a folder, and plain pictures to fill a batch."""
    root = tmp_path_factory.mktemp("strange") / "images"
    root.mkdir()
    for name, file in FILES.items():
        (root / name).write_bytes(file.data)
    (root / "folder.jpg").mkdir()
    (root / "dangling.jpg").symlink_to(root / "nowhere.jpg")
    (root / "linked.jpg").symlink_to(root / "plain.jpg")
    (root / "notes.txt").write_text("not meant as a picture")
    (root / ".hidden.jpg").write_bytes(b"")
    if os.geteuid():  # the superuser may read anything
        (root / "forbidden.jpg").write_bytes(FILES["plain.jpg"].data)
        (root / "forbidden.jpg").chmod(0)
    for number in range(-len(open_images(root).train) % BATCH):
        (root / f"filler {number}.png").write_bytes(saved(scene(), "PNG"))
    return root


def unreadable(folder: Path) -> dict[str, str]:
    """The name of each file that cannot be read, and a part of the reason."""
    broken = {name: file.reason for name, file in FILES.items() if file.pixels is None}
    broken["dangling.jpg"] = "No such file or directory"
    if (folder / "forbidden.jpg").exists():
        broken["forbidden.jpg"] = "Permission denied"
    return broken


def escaped(name: str) -> str:
    return name.replace("\n", "\\n").replace("\t", "\\t")


def test_there_are_many_kinds_and_a_folder_shows_them_all(folder: Path) -> None:
    source = open_images(folder).train
    names = {source.name(index) for index in range(len(source))}
    assert len(FILES) >= 40
    assert names >= FILES.keys() | {"dangling.jpg", "linked.jpg"}
    assert not names & {"folder.jpg", "notes.txt", ".hidden.jpg"}


def test_each_file_gives_its_pixels_or_an_error_with_its_name(folder: Path) -> None:
    source, broken = open_images(folder).train, unreadable(folder)
    for index in range(len(source)):
        name = source.name(index)
        if name in broken:
            with pytest.raises(UnreadableImageError) as fault:
                decode(source, index, DataConfig())
            assert fault.value.place == escaped(str(folder / name))
            assert broken[name] in fault.value.reason
        elif name in FILES:
            expected = FILES[name].pixels
            assert expected is not None
            found = decode(source, index, DataConfig())
            assert found.shape == expected.shape, name
            assert np.abs(found.astype(int) - expected).mean() <= FILES[name].off, name


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_over_them_ends_well_and_lists_exactly_the_unreadable_ones(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], workers: int
) -> None:
    chosen = [*SHORT, "schedule.epochs=1", f"train.workers={workers}", "data.unreadable_limit=1"]
    attmask.pretrain(folder, recipe="tiny", out=tmp_path / "run", overrides=chosen)
    lines = (tmp_path / "run" / "unreadable.tsv").read_text(encoding="utf-8").splitlines()
    listed = dict(line.split("\t") for line in lines)
    broken = unreadable(folder)
    assert listed.keys() == {escaped(str(folder / name)) for name in broken}
    assert len(lines) == len(listed)
    for name, reason in broken.items():
        assert reason in listed[escaped(str(folder / name))]
    said = "".join(capfd.readouterr())
    assert not any(word in said for word in ("Corrupt JPEG", "libpng", "TIFF_Warning", "PIL/"))


def test_with_the_usual_limit_the_run_stops_with_the_list(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data\.unreadable_limit=0\.01: .*unreadable\.tsv"):
        attmask.pretrain(folder, recipe="tiny", out=tmp_path / "run", overrides=SHORT)
    assert (tmp_path / "run" / "unreadable.tsv").read_text()
