"""A real process that is stopped leaves a checkpoint, and the same command goes on to the bit."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.evaluation import online
from attmask.monitor import read_metrics
from tests.runs import SHORT, Forked, finish, last_checkpoint, same_tensors, start

STEPS = 60
SETTINGS = (*SHORT, f"schedule.epochs={STEPS // 6}", "monitor.knn_every_epochs=5")


def command(data: Path, out: Path, *overrides: str) -> list[str]:
    return ["pretrain", str(data), "--recipe", "tiny", "--out", str(out), *SETTINGS, *overrides]


def wait_for_steps(process: subprocess.Popen[str] | Forked, run: Path, steps: int) -> None:
    """Until so many lines of metrics are there."""
    metrics = run / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") > steps:
            return
        time.sleep(0.005)
    pytest.fail(f"no {steps} steps before the end: {process.poll()}")


def logged(run: Path) -> list[dict[str, float]]:
    """All records, without what depends on the machine."""
    return [
        {
            name: value
            for name, value in record.items()
            if name != "time" and not name.startswith("speed.")
        }
        for record in read_metrics(run)
    ]


@pytest.fixture(scope="module")
def undisturbed(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    assert main(command(scenes, run)) == 0
    return run


def assert_same_run(run: Path, wanted: Path) -> None:
    ours = last_checkpoint(run)
    assert ours.step == STEPS
    assert same_tensors(ours, last_checkpoint(wanted))
    assert logged(run) == logged(wanted)
    steps = [record["step"] for record in logged(run) if "loss.total" in record]
    assert steps == list(range(STEPS)), "every step once"


def test_ctrl_c_leaves_a_checkpoint_and_the_same_command_goes_on_to_the_bit(
    scenes: Path, tmp_path: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = command(scenes, run)
    process = start(*words)
    wait_for_steps(process, run, 4)
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    reached = last_checkpoint(run).step
    assert 4 <= reached < STEPS
    assert status == 130
    assert out == (
        f"attmask: stopped and saved at step {reached} of {STEPS}; run the same command to resume\n"
    )
    assert "Traceback" not in err
    assert main(words) == 0
    done = f"attmask: done, {STEPS} steps; the backbone and all metrics are in {run}\n"
    assert capsys.readouterr().out == done
    assert_same_run(run, undisturbed)


@pytest.mark.slow
def test_sigterm_to_the_whole_job_with_its_worker_does_the_same(
    scenes: Path, tmp_path: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    process = Forked(tmp_path / "said", *command(scenes, run, "train.workers=1"))
    wait_for_steps(process, run, 4)
    os.killpg(process.pid, signal.SIGTERM)  # as a batch system does
    status, said = process.finish()
    assert (status, "Traceback" in said) == (128 + signal.SIGTERM, False), said
    assert "attmask: stopped and saved at step " in said
    assert 4 <= last_checkpoint(run).step < STEPS
    assert main(command(scenes, run, "train.workers=1")) == 0
    assert_same_run(run, undisturbed)


def test_a_killed_process_goes_on_from_its_last_checkpoint(
    scenes: Path, tmp_path: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    words = command(scenes, run, "checkpoint.every_minutes=0")
    process = Forked(tmp_path / "said", *words)
    wait_for_steps(process, run, 6)
    os.kill(process.pid, signal.SIGKILL)
    assert process.finish()[0] == -signal.SIGKILL
    assert 4 <= last_checkpoint(run).step < STEPS
    assert main(words) == 0
    assert_same_run(run, undisturbed)


@pytest.mark.parametrize(
    ("victim", "delay"),
    [
        (0, 0.0),
        pytest.param(1, 0.02, marks=pytest.mark.slow),
        pytest.param(0, 0.05, marks=pytest.mark.slow),
    ],
)
def test_a_worker_killed_for_memory_is_one_line_and_the_last_step_is_saved(
    scenes: Path, tmp_path: Path, undisturbed: Path, victim: int, delay: float
) -> None:
    run = tmp_path / "run"
    process = Forked(tmp_path / "said", *command(scenes, run, "train.workers=2"))
    wait_for_steps(process, run, 3)
    time.sleep(delay)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(workers[victim]), signal.SIGKILL)  # as the system does when memory runs out
    status, said = process.finish()
    assert (status, "Traceback" in said) == (1, False), said
    line = said.splitlines()[-1]
    assert line.startswith("attmask: a worker process was ended by signal Killed")
    assert "most likely ran out of memory: use fewer train.workers (2 now)" in line
    reached = last_checkpoint(run).step
    assert reached == sum("loss.total" in record for record in logged(run)), "no step is lost"
    assert main(command(scenes, run)) == 0
    assert_same_run(run, undisturbed)


def test_a_stop_in_an_evaluation_comes_soon_and_the_resumed_run_measures_once(
    scenes: Path, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(online, "BATCH", 1)  # as slow as with many images
    process = Forked(tmp_path / "said", *command(scenes, run))
    monkeypatch.undo()
    deadline = time.monotonic() + 90
    while not (run / "checkpoints" / "step-00000030").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGTERM)
    status, said = process.finish()
    assert (status, "Traceback" in said) == (128 + signal.SIGTERM, False), said
    assert last_checkpoint(run).step == 30
    assert [r["epoch"] for r in logged(run) if "knn.top1" in r] == [0], "not the one of epoch 5"
    assert main(command(scenes, run)) == 0
    assert [r["epoch"] for r in logged(run) if "knn.top1" in r] == [0, 5, 10]
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))


def test_a_finished_run_started_again_does_nothing(
    scenes: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = last_checkpoint(undisturbed), logged(undisturbed)
    files = sorted(path.stat().st_mtime_ns for path in undisturbed.glob("checkpoints/*/*"))
    assert main(command(scenes, undisturbed)) == 0
    assert f"done, {STEPS} steps" in capsys.readouterr().out
    assert sorted(p.stat().st_mtime_ns for p in undisturbed.glob("checkpoints/*/*")) == files
    assert same_tensors(last_checkpoint(undisturbed), before[0])
    assert logged(undisturbed) == before[1]
