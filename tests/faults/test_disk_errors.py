"""A disk that is full or read-only at any call: one clear line, and nothing whole is lost."""

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.data.synthetic import write_folder
from tests.faults.disk_errors import (
    ERRORS,
    STEPS,
    Case,
    Ending,
    bits,
    command,
    faults_of,
    run_with_fault,
)
from tests.faults.shim import build
from tests.runs import last_checkpoint

NONE = -1
WITHIN = [3, 6, 10, 16, 41, 43, 45, 60, 66, 75, 92, 120]
"""Calls of all sorts: settings, index, log, checkpoints, removals."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("few")
    write_folder(root, train=12, val=2, size=32, seed=0)
    return root


@pytest.fixture(scope="module")
def undisturbed(
    few: Path, library: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[bool], tuple[Ending, object]]:
    """How a run without faults ends, with TensorBoard or without."""
    # Once, so that the forks need not import anything.
    warm = tmp_path_factory.mktemp("warm") / "run"
    assert main(command(few, warm, "monitor.tensorboard=true")) == 0
    ends: dict[bool, tuple[Ending, object]] = {}

    def end(tensorboard: bool) -> tuple[Ending, object]:
        if tensorboard not in ends:
            folder = tmp_path_factory.mktemp("undisturbed") / "disk"
            case = Case(NONE, errno.ENOSPC, False, tensorboard)
            words = command(few, folder / "run", *case.settings)
            ended = run_with_fault(library, words, folder, case)
            assert (ended.status, ended.reported) == (0, STEPS), ended.said
            ends[tensorboard] = ended, bits(folder / "run")
        return ends[tensorboard]

    return end


def check(
    case: Case, few: Path, library: Path, folder: Path, wanted: object, *, goes_on: bool
) -> None:
    """One case: how it ends, what is left, and that the same command goes on to the same bits."""
    run = folder / "run"
    words = command(few, run, *case.settings)
    ended = run_with_fault(library, words, folder, case)
    wrong = faults_of(ended, run, case.error)
    if wrong == ["no warning"] and not case.stays and (run / "index.npz").exists():
        wrong = []  # zipfile opens its file a second time by itself
    assert wrong == [], f"{case}: {ended.said}"
    if ended.status == 1 and goes_on:
        again = run_with_fault(library, words, folder, Case(NONE, 1, False, case.tensorboard))
        assert again.status == 0, f"{case}: {again.said}"
    if ended.status == 0 or goes_on:
        assert bits(run) == wanted, str(case)
    shutil.rmtree(folder)


@pytest.mark.parametrize("number", WITHIN)
def test_an_error_of_the_disk_is_one_line_and_the_same_command_goes_on(
    few: Path,
    library: Path,
    tmp_path: Path,
    undisturbed: Callable[[bool], tuple[Ending, object]],
    number: int,
) -> None:
    case = Case(number, ERRORS[number % 3], number % 2 == 0, False)
    _, wanted = undisturbed(False)
    check(case, few, library, tmp_path / "disk", wanted, goes_on=True)


@pytest.mark.slow
@pytest.mark.parametrize("stays", [False, True], ids=["once", "stays"])
@pytest.mark.parametrize("error", ERRORS, ids=[errno.errorcode[error] for error in ERRORS])
def test_an_error_at_every_call_is_one_line_and_the_same_command_goes_on(
    few: Path,
    library: Path,
    tmp_path: Path,
    undisturbed: Callable[[bool], tuple[Ending, object]],
    error: int,
    stays: bool,
) -> None:
    ended, wanted = undisturbed(False)
    assert ended.calls > 100
    for number in range(ended.calls):
        goes_on = number % 3 == ERRORS.index(error)  # what is left hardly depends on the error
        case = Case(number, error, stays, False)
        check(case, few, library, tmp_path / str(number), wanted, goes_on=goes_on)


@pytest.mark.slow
def test_an_error_at_every_call_with_tensorboard_is_a_line_or_a_warning(
    few: Path,
    library: Path,
    tmp_path: Path,
    undisturbed: Callable[[bool], tuple[Ending, object]],
) -> None:
    ended, wanted = undisturbed(True)
    assert ended.calls > 150
    for number in range(ended.calls):
        case = Case(number, ERRORS[number % 3], number % 2 == 0, True)
        check(case, few, library, tmp_path / str(number), wanted, goes_on=number % 5 == 0)


def test_an_error_of_tensorboards_files_is_a_warning_and_the_run_is_finished(
    few: Path, library: Path, tmp_path: Path, undisturbed: Callable[[bool], tuple[Ending, object]]
) -> None:
    _, wanted = undisturbed(True)
    folder = tmp_path / "disk"
    case = Case(60, errno.ENOSPC, False, True)
    ended = run_with_fault(library, command(few, folder / "run", *case.settings), folder, case)
    assert ended.status == 0, ended.said
    (line,) = (line for line in ended.said.splitlines() if "TensorBoard" in line)
    assert line == (
        f"cannot write TensorBoard's events in {folder / 'run' / 'tensorboard'}: No space left on "
        "device; the run goes on without them, and all metrics are in metrics.jsonl"
    )
    assert "Traceback" not in ended.said
    assert bits(folder / "run") == wanted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of its own with room for one checkpoint and a half."""
    place = tmp_path / "small"
    place.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    try:
        done = subprocess.run(words, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_disk_that_fills_up_is_one_line_and_once_there_is_room_the_run_goes_on(
    few: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_disk / "run"
    words = command(few, run, "monitor.tensorboard=false", "checkpoint.keep=2")
    filled = small_disk / "others"
    with filled.open("wb") as file:
        free = os.statvfs(small_disk)
        file.write(bytes(free.f_bavail * free.f_frsize - 2_000_000))
    status = main(words)
    said = capsys.readouterr().err
    assert status == 1, said
    last = [line for line in said.splitlines() if line.startswith("attmask: ")]
    assert len(last) == 1
    assert "No space left on device" in last[0]
    assert "make room" in last[0]
    reached = last_checkpoint(run).step
    assert 1 <= reached < STEPS
    filled.unlink()
    assert main(words) == 0
    assert last_checkpoint(run).step == STEPS
