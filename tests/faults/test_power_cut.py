"""A power cut at any moment leaves a whole checkpoint, at least as new as the last one reported."""

import logging
import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from attmask import atomic, checkpoint
from attmask.cli import main
from attmask.config import PretrainConfig
from attmask.run import RunFolder, origin_of
from attmask.run_config import from_yaml
from tests.faults.disk import Disk, losses, write
from tests.faults.shim import Call, Kind, Shim, build, read_journal
from tests.runs import SHORT, last_checkpoint, same_tensors
from tests.test_checkpoint import made

STEPS = 6
RECORDED = "saved "


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shim"))


def journal_of(act: Callable[[Shim], None], library: Path, folder: Path) -> list[Call]:
    """What a child process does to a folder."""
    folder.mkdir()
    journal = folder.with_name(f"{folder.name}.journal")

    def watched() -> None:
        act(Shim(library, folder, journal))

    child = multiprocessing.get_context("fork").Process(target=watched)
    child.start()
    child.join(timeout=120)
    assert child.exitcode == 0
    return list(read_journal(journal))


class Check:
    """Looks at what power cuts leave; the same remains are looked at once."""

    def __init__(self, folder: Path, checkpoints: str) -> None:
        self.folder, self.checkpoints = folder, checkpoints
        self.cuts = 0
        self._known: dict[frozenset[tuple[str, bytes | None]], int] = {}

    def newest(self, found: dict[str, bytes | None]) -> int:
        """The step that is found, 0 if there is none; every checkpoint must be whole."""
        finished = {
            Path(name).relative_to(self.checkpoints).as_posix(): content
            for name, content in found.items()
            if name.startswith(f"{self.checkpoints}/step-")
        }
        key = frozenset(finished.items())
        if key not in self._known:
            write(finished, self.folder)
            for path in self.folder.iterdir():
                checkpoint.verify(path)
            loaded = checkpoint.load_newest(self.folder)
            self._known[key] = 0 if loaded is None else loaded.step
            shutil.rmtree(self.folder)
        return self._known[key]

    def all(self, root: Path, calls: list[Call], seeds: range) -> None:
        """Cut the power after every call."""
        disk, reported = Disk(root), 0
        for call in calls:
            disk.apply(call)
            if call.kind == Kind.MARK:
                reported = int(call.first.removeprefix(RECORDED))
            for loss in losses(seeds):
                self.cuts += 1
                step = self.newest(disk.after_power_cut(loss))
                assert step >= reported, f"{loss.name} is lost after {call.kind.name} {call.first}"


def save_some(shim: Shim, folder: Path, keep: int) -> None:
    for step in range(1, STEPS + 1):
        checkpoint.save(folder, replace(made(step), is_kept=step % 3 == 0), keep=keep)
        shim.mark(f"{RECORDED}{step}")


@pytest.mark.parametrize("keep", [1, 2])
def test_a_power_cut_after_any_call_leaves_the_last_reported_checkpoint_or_a_newer_one(
    tmp_path: Path, library: Path, keep: int, caplog: pytest.LogCaptureFixture
) -> None:
    root, inside = tmp_path / "disk", "runs/new/checkpoints"
    calls = journal_of(lambda shim: save_some(shim, root / inside, keep), library, root)
    kinds = {call.kind for call in calls}
    assert {Kind.OPEN, Kind.WRITE, Kind.FLUSH, Kind.RENAME, Kind.MKDIR, Kind.UNLINK} <= kinds
    check = Check(tmp_path / "after", inside)
    check.all(root, calls, range(4))
    assert check.cuts > 250 * STEPS
    assert caplog.messages == [], "nothing is damaged"


def _flush_nothing(path: Path) -> None:
    del path


def _flush_files(path: Path, flush: Callable[[Path], None] = atomic.flush) -> None:
    if path.is_file():
        flush(path)


def _flush_folders(path: Path, flush: Callable[[Path], None] = atomic.flush) -> None:
    if path.is_dir():
        flush(path)


def _make_folder(path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)


def _remove_folder(path: Path) -> None:
    removed = path.with_name(f".part-{path.name}")
    path.rename(removed)
    shutil.rmtree(removed)


@pytest.mark.parametrize(
    ("name", "spoiled"),
    [
        ("flush", _flush_nothing),
        ("flush", _flush_files),
        ("flush", _flush_folders),
        ("make_folder", _make_folder),
        ("remove_folder", _remove_folder),
    ],
)
def test_the_check_finds_what_is_lost_where_something_is_not_flushed(
    tmp_path: Path,
    library: Path,
    name: str,
    spoiled: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(atomic, name, spoiled)
    root, inside = tmp_path / "disk", "new/checkpoints"
    calls = journal_of(lambda shim: save_some(shim, root / inside, 1), library, root)
    with pytest.raises((AssertionError, ValueError)):
        Check(tmp_path / "after", inside).all(root, calls, range(2))


def train(shim: Shim, words: list[str]) -> None:
    """Train, with a mark in the journal for every checkpoint that was written."""
    whole = RunFolder.save

    def save_and_mark(folder: RunFolder, step: int, *rest: object, **settings: object) -> None:
        whole(folder, step, *rest, **settings)  # type: ignore[arg-type]
        shim.mark(f"{RECORDED}{step}")

    RunFolder.save = save_and_mark  # type: ignore[assignment, method-assign]
    assert main(words) == 0


def command(images: Path, run: Path) -> list[str]:
    settings = ("schedule.epochs=1", "checkpoint.every_minutes=0", "train.batch_size=16")
    words = ["pretrain", str(images), "--recipe", "tiny", "--out", str(run)]
    return [*words, *SHORT[1:], *settings, "checkpoint.keep=1", "monitor.knn_every_epochs=0"]


@pytest.mark.slow
def test_a_power_cut_in_a_run_leaves_what_the_same_command_resumes_to_the_same_bits(
    scenes: Path, tmp_path: Path, library: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "disk"
    words = command(scenes, root / "runs" / "run")
    calls = journal_of(lambda shim: train(shim, words), library, root)
    wanted = last_checkpoint(root / "runs" / "run")
    check = Check(tmp_path / "after", "runs/run/checkpoints")
    caplog.set_level(logging.WARNING)
    check.all(root, calls, range(2))
    assert caplog.messages == []
    disk, resumed = Disk(root), 0
    shown = set(range(0, len(calls), max(1, len(calls) // 12)))
    for number, call in enumerate(calls):
        disk.apply(call)
        if number not in shown:
            continue
        for loss in losses(range(1)):
            place = tmp_path / f"after-{number}-{len(loss.name)}"
            write(disk.after_power_cut(loss), place)
            run = place / "runs" / "run"
            if any(call.kind == Kind.MARK for call in calls[:number]):
                assert from_yaml(run / "config.yaml", PretrainConfig).checkpoint.keep == 1
                assert origin_of(run) == scenes
            assert main(command(scenes, run)) == 0, loss.name
            assert same_tensors(last_checkpoint(run), wanted)
            shutil.rmtree(place)
            resumed += 1
    assert resumed > 50
