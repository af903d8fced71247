"""What is written is whole or not there, whatever happens to the writer."""

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attmask import atomic


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def always(_: Path) -> bool:
    return True


def never(_: Path) -> bool:
    return False


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def named_after(writer: str, pid: int) -> str:
    """The name of a writer on this machine, with another process number."""
    return f"{pid}-{writer.partition('-')[2]}"


@pytest.mark.parametrize("content", [b"\x00\xff", "grün\n"])
def test_bytes_and_text_are_written_and_nothing_else_stays(
    tmp_path: Path, content: bytes | str
) -> None:
    path = tmp_path / "new" / "file"
    for _ in range(2):
        atomic.write(path, content)
        assert path.read_bytes() == (content if isinstance(content, bytes) else content.encode())
        assert names(path.parent) == ["file"]


def test_a_library_writes_to_the_path_it_is_given_with_the_final_suffix(tmp_path: Path) -> None:
    with atomic.file(tmp_path / "a.npy") as part:
        np.save(part, np.arange(3))
        assert not (tmp_path / "a.npy").exists()
    assert np.load(tmp_path / "a.npy").tolist() == [0, 1, 2]
    assert names(tmp_path) == ["a.npy"]


def fail_to_write_file(path: Path) -> None:
    with atomic.file(path) as part:
        part.write_text("half")
        raise OSError("disk full")


def fail_to_write_folder(path: Path) -> None:
    with atomic.folder(path, replaces=always) as part:
        (part / "one").touch()
        raise KeyboardInterrupt


def test_the_old_file_stays_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError, match="disk full"):
        fail_to_write_file(path)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_the_old_folder_stays_if_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(KeyboardInterrupt):
        fail_to_write_folder(tmp_path / "folder")
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == []


@pytest.mark.parametrize(("replaces", "kept"), [(always, "new"), (never, "old")])
def test_a_folder_that_is_there_is_replaced_only_where_the_caller_says_so(
    tmp_path: Path, replaces: Callable[[Path], bool], kept: str
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "old").touch()
    with atomic.folder(tmp_path / "folder", replaces=replaces) as part:
        (part / "new").touch()
        assert names(tmp_path / "folder") == ["old"]
    assert names(tmp_path) == ["folder"]
    assert names(tmp_path / "folder") == [kept]


def fill(path: Path, writer: str, name: str) -> None:
    with atomic.folder(path, replaces=always, writer=writer) as part:
        (part / name).touch()


def test_several_processes_fill_one_folder_and_its_owner_renames_it(tmp_path: Path) -> None:
    path, writer = tmp_path / "deep" / "folder", atomic.new_writer()
    with atomic.folder(path, replaces=always, writer=writer) as part:
        other = multiprocessing.get_context("spawn").Process(
            target=fill, args=(path, writer, "theirs")
        )
        other.start()
        other.join()
        assert not path.exists(), "the other process does not rename it"
        (part / "ours").touch()
    assert names(path) == ["ours", "theirs"]
    assert names(path.parent) == ["folder"]


def test_every_file_is_flushed_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[tuple[str, bool]] = []
    final = tmp_path / "final"

    def note(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink().name.rpartition("@")[2]
        flushed.append((name, final.exists()))

    monkeypatch.setattr(os, "fsync", note)
    with atomic.folder(final, replaces=never) as part:
        (part / "one").touch()
    assert flushed == [("one", False), ("final", False), (tmp_path.name, True)]
    flushed.clear()
    atomic.remove_folder(final)
    atomic.write(final, "text")
    assert flushed == [(tmp_path.name, False), ("final", False), (tmp_path.name, True)]
    flushed.clear()
    atomic.write(tmp_path / "a" / "b" / "file", "text")
    assert [name for name, _ in flushed] == [tmp_path.name, "a", "file", "b"], "folders come first"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_dead_process_left_is_removed_and_what_a_living_one_writes_is_not(
    tmp_path: Path, kind: str
) -> None:
    writer = atomic.new_writer()
    own, parent, dead, reused = (
        tmp_path / f".part-{name}@cards.json"
        for name in (
            writer,
            named_after(writer, os.getppid()),
            named_after(writer, dead_process()),
            writer.replace("-", "-0", 1),  # this process's number, but none of its writers
        )
    )
    for left in (own, parent, dead, reused):
        left.touch() if kind == "file" else left.mkdir()
    atomic.write(tmp_path / "other", "text")
    assert set(tmp_path.iterdir()) == {own, parent, tmp_path / "other"}


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_another_machine_writes_stays_for_an_hour(tmp_path: Path, kind: str) -> None:
    for name, age in (("fresh", 60), ("old", 4000)):
        part = tmp_path / f".part-17-0a1b2c3d@{name}@a"
        part.touch() if kind == "file" else part.mkdir()
        os.utime(part, (time.time() - age,) * 2)
    atomic.write(tmp_path / "b", "text")
    assert names(tmp_path) == [".part-17-0a1b2c3d@fresh@a", "b"]


def test_hidden_files_of_others_are_never_removed(tmp_path: Path) -> None:
    for name in (".part-download", ".part-12", ".hidden"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    atomic.write(tmp_path / "b", "text")
    assert names(tmp_path) == [".hidden", ".part-12", ".part-download", "b"]


def test_a_folder_is_seen_to_be_written_to_until_it_is_done(tmp_path: Path) -> None:
    assert not atomic.is_being_written(tmp_path)
    with atomic.file(tmp_path / "a"):
        assert atomic.is_being_written(tmp_path)
    assert not atomic.is_being_written(tmp_path)


def test_a_folder_that_is_removed_is_gone_and_one_that_is_not_there_is_no_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    atomic.remove_folder(tmp_path / "folder")
    atomic.remove_folder(tmp_path / "folder")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        ".part-00001200-123@elsewhere-4026531836",
        f".part-{'0f' * 16}-elsewhere-123",
    ],
)
def test_leftovers_of_earlier_versions_are_removed_after_an_hour(tmp_path: Path, name: str) -> None:
    left = tmp_path / name
    left.mkdir()
    atomic.write(tmp_path / "a.txt", "new")
    assert left.exists()
    an_hour_ago = time.time() - 3601
    os.utime(left, (an_hour_ago, an_hour_ago))
    atomic.write(tmp_path / "a.txt", "newer")
    assert not left.exists()
