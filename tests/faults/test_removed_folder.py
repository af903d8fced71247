"""A folder that is removed or renamed under a run: the run saves into it again and says so."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from torch import Tensor

from attmask import checkpoint, checkpoint_files, checkpointing
from attmask.cli import main
from attmask.config import PretrainConfig
from attmask.run import origin_of
from attmask.run_config import from_yaml
from tests.processes import finish_group, start_group
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

STEPS = 36
RESUMES = "the same command resumes"


def command(images: Path, run: Path, *settings: str) -> list[str]:
    return [
        *("pretrain", str(images), "--recipe", "tiny", "--out", str(run), *SHORT),
        *(f"schedule.epochs={STEPS // 6}", "monitor.knn_every_epochs=0"),
        *("checkpoint.keep_every_epochs=1", *settings),
    ]


@pytest.fixture(scope="module")
def undisturbed(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert main(command(scenes, run)) == 0
    return run


def remove(run: Path) -> None:
    """rm -rf, which fails where files come as fast as it removes them."""
    while subprocess.run(["rm", "-rf", str(run)], capture_output=True).returncode != 0:
        pass


def remove_checkpoints(run: Path) -> None:
    remove(run / "checkpoints")


def rename(run: Path) -> None:
    run.rename(run.with_name("elsewhere"))


def put_a_file_there(run: Path) -> None:
    """So that it cannot be made again."""
    rename(run)
    run.write_text("a file")


def wait_for(happened: Callable[[], bool], process: Forked) -> None:
    deadline = time.monotonic() + 90
    while not happened():
        assert process.poll() is None, process.finish()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def saves(run: Path) -> bool:
    return checkpoint.newest(run / "checkpoints") is not None


def last_line(said: str) -> str:
    """The only line of the command itself."""
    assert "Traceback" not in said, said
    (line,) = (line for line in said.splitlines() if line.startswith("attmask: "))
    return line


REMOVALS = pytest.mark.parametrize(
    ("harm", "gone", "lost"),
    [
        (remove, "run", "its log and checkpoints"),
        pytest.param(
            remove_checkpoints, "run/checkpoints", "its checkpoints", marks=pytest.mark.slow
        ),
        pytest.param(rename, "run", "its log and checkpoints", marks=pytest.mark.slow),
    ],
)


def assert_saved_again(run: Path, said: str, gone: str, lost: str, images: Path) -> None:
    reached = last_checkpoint(run).step
    assert 6 <= reached <= STEPS
    assert last_line(said) == (
        f"attmask: {run.parent / gone} was removed or renamed while the run was training, and "
        f"{lost} with it; the state was saved there again at step {reached}: {RESUMES}"
    )
    assert from_yaml(run / "config.yaml", PretrainConfig).schedule.epochs == STEPS // 6
    assert origin_of(run) == images


@REMOVALS
@pytest.mark.parametrize("tensorboard", ["false", pytest.param("true", marks=pytest.mark.slow)])
def test_a_folder_removed_between_two_checkpoints_is_noticed_and_nothing_trained_is_lost(
    scenes: Path,
    tmp_path: Path,
    undisturbed: Path,
    harm: Callable[[Path], None],
    gone: str,
    lost: str,
    tensorboard: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkpointing, "_LOOK_SECONDS", 0.02)
    run = tmp_path / "run"
    words = command(scenes, run, f"monitor.tensorboard={tensorboard}")
    process = Forked(tmp_path / "said", *words)
    wait_for(lambda: saves(run), process)
    harm(run)
    status, said = process.finish()
    assert status == 1, said
    assert_saved_again(run, said, gone, lost, scenes)
    assert main(words) == 0
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))


@REMOVALS
@pytest.mark.parametrize("step", [pytest.param(12, marks=pytest.mark.slow), STEPS])
def test_a_folder_removed_in_the_middle_of_a_checkpoint_is_noticed_too(
    scenes: Path,
    tmp_path: Path,
    undisturbed: Path,
    step: int,
    harm: Callable[[Path], None],
    gone: str,
    lost: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, begun = tmp_path / "run", tmp_path / "begun"
    whole = checkpoint_files.write_tensors

    def wait_and_write(path: Path, tensors: dict[str, Tensor]) -> None:
        if not begun.exists() and path.parent.name.endswith(f"step-{step:08d}"):
            begun.touch()
            while path.parent.exists():
                time.sleep(0.002)
        whole(path, tensors)

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "write_tensors", wait_and_write)
        process = Forked(tmp_path / "said", *command(scenes, run))
    wait_for(begun.exists, process)
    harm(run)
    status, said = process.finish()
    assert status == 1, said
    assert_saved_again(run, said, gone, lost, scenes)
    assert main(command(scenes, run)) == 0
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))


def test_where_saving_again_fails_too_the_run_says_so(scenes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = Forked(tmp_path / "said", *command(scenes, run))
    wait_for(lambda: saves(run), process)
    os.kill(process.pid, signal.SIGSTOP)
    put_a_file_there(run)
    os.kill(process.pid, signal.SIGCONT)
    status, said = process.finish()
    assert status == 1, said
    line = last_line(said)
    assert line.startswith(f"attmask: {run} was removed or renamed while the run was training")
    assert f"there again failed too: cannot use {run} for a run: File exists" in line
    whole = tmp_path / "elsewhere"
    assert checkpoint.find_newest(whole / "checkpoints") is not None


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["none", "fsdp"])
def test_two_processes_save_again_together(scenes: Path, tmp_path: Path, engine: str) -> None:
    run = tmp_path / "run"
    words = command(scenes, run, f"train.sharding={engine}", "schedule.epochs=200")
    group = start_group(["-m", "attmask", *words], 2)
    deadline = time.monotonic() + 120
    while not saves(run) and time.monotonic() < deadline:
        time.sleep(0.01)
    remove(run)
    ended = finish_group(group, 120)
    assert [status for status, _ in ended] == [1, 1], ended
    line = last_line("\n".join(said for _, said in ended))
    reached = last_checkpoint(run).step
    assert line.endswith(f"the state was saved there again at step {reached}: {RESUMES}")
