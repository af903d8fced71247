"""A disk that is full or read-only at any call: one clear line, and nothing whole is lost."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.data.synthetic import write_folder
from tests.faults.disk_errors import (
    ERRORS,
    STEPS,
    Case,
    bits,
    command,
    run_with_fault,
    undisturbed,
    what_is_wrong,
)
from tests.faults.shim import build
from tests.processes import ROOT, run_group
from tests.runs import last_checkpoint

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
def wanted(few: Path, library: Path, tmp_path_factory: pytest.TempPathFactory) -> object:
    """The bits of a run without faults."""
    folder = tmp_path_factory.mktemp("undisturbed")
    # Once, so that the forks need not import anything.
    assert main(command(few, folder / "warm", "monitor.tensorboard=true")) == 0
    _, bits_of_it = undisturbed(library, few, folder / "disk", False)
    return bits_of_it


@pytest.mark.parametrize("number", WITHIN)
def test_an_error_of_the_disk_is_one_line_and_the_same_command_goes_on(
    few: Path, library: Path, tmp_path: Path, wanted: object, number: int
) -> None:
    case = Case(number, ERRORS[number % 3], number % 2 == 0, False)
    assert what_is_wrong(case, library, few, tmp_path / "disk", wanted, goes_on=True) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        *((errno.errorcode[error], how) for error in ERRORS for how in ("once", "stays")),
        ("any", "tensorboard"),
    ],
    ids="-".join,
)
def test_an_error_at_every_call_is_one_line_and_the_same_command_goes_on(
    few: Path, library: Path, tmp_path: Path, how: tuple[str, str]
) -> None:
    (tmp_path / "disk").mkdir()
    script = ROOT / "tests" / "faults" / "disk_errors.py"
    (said,) = run_group([script, library, few, tmp_path / "disk", *how], 1, seconds=900)
    assert int(said.split("cases ")[1].split()[0]) > 100


def test_an_error_of_tensorboards_files_is_a_warning_and_the_run_is_finished(
    few: Path, library: Path, tmp_path: Path, wanted: object
) -> None:
    for number in range(50, 70):  # TensorBoard has a thread, so the number of its calls differs
        folder = tmp_path / f"disk-{number}"
        case = Case(number, errno.ENOSPC, False, True)
        ended = run_with_fault(library, command(few, folder / "run", *case.settings), folder, case)
        lines = [line for line in ended.said.splitlines() if "TensorBoard" in line]
        if lines:
            break
    assert ended.status == 0, ended.said
    (line,) = lines
    assert line == (
        "TensorBoard failed (No space left on device) and gets no more metrics until the run is "
        "resumed; metrics.jsonl has all"
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
