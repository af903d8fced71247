"""The scripts of docs/operations.md train, stop, save and resume on two processes of a CPU."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from attmask.data.synthetic import write_folder
from tests.processes import ROOT, children_of, free_port, steps_logged, wait_for
from tests.runs import SHORT, environment, last_checkpoint, same_tensors

SCRIPTS = sorted((ROOT / "scripts").glob("*.sh"))
QUICK = (*SHORT, "monitor.knn_every_epochs=0")
LONG = (*QUICK, "schedule.epochs=3000", "checkpoint.every_minutes=0")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_folder(folder, train=48, val=10, size=32, seed=0)
    return folder


@pytest.fixture
def start(images: Path) -> Iterator[Start]:
    """Starts a script; what is left of it in the end is killed."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        name: str, run: Path, *settings: str, **variables: str | int | Path
    ) -> subprocess.Popen[str]:
        of_user = {"PYTHON": sys.executable, "PROCESSES": "2"}
        script = subprocess.Popen(
            [ROOT / "scripts" / name, images, "--recipe", "tiny", "--out", run, *settings],
            env={**environment(), **of_user, **{key: str(v) for key, v in variables.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(script)
        return script

    yield begin
    for script in started:
        if script.poll() is None:
            os.killpg(script.pid, signal.SIGKILL)
        script.communicate()


def wait_for_steps(run: Path, more: int = 3) -> None:
    wanted = steps_logged(run) + more
    wait_for(lambda: steps_logged(run) >= wanted, "no steps were logged")


def child_of(pid: int) -> int:
    """The process that another has started first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0])


def saved_step(said: str) -> int:
    """The step that the last line of a stopped run names."""
    (step,) = re.findall(r"^attmask: stopped and saved at step (\d+) of", said, re.MULTILINE)
    return int(step)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_is_sound_shell(script: Path) -> None:
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", script], check=True)


def train_on_one_machine(start: Start, run: Path) -> str:
    script = start("one_machine.sh", run, *QUICK, "schedule.epochs=1")
    said, _ = script.communicate(timeout=120)
    assert script.returncode == 0, said
    return said


@pytest.mark.slow
def test_one_machine_trains_with_as_many_processes_as_asked(start: Start, tmp_path: Path) -> None:
    said = train_on_one_machine(start, tmp_path / "run")
    assert "2 processes (DDP) on cpu" in said
    assert last_checkpoint(tmp_path / "run").step == 6


@pytest.mark.slow
def test_several_machines_train_the_weights_of_one(start: Start, tmp_path: Path) -> None:
    train_on_one_machine(start, tmp_path / "one")
    first = f"127.0.0.1:{free_port()}"
    machine = {"MACHINES": 2, "FIRST": first, "ADDRESS": "127.0.0.1", "PROCESSES": 1}
    settings = (*QUICK, "schedule.epochs=1")
    two = [start("several_machines.sh", tmp_path / "two", *settings, **machine) for _ in range(2)]
    told = [each.communicate(timeout=120)[0] for each in two]
    assert [each.returncode for each in two] == [0, 0], told
    assert same_tensors(last_checkpoint(tmp_path / "one"), last_checkpoint(tmp_path / "two"))


def test_several_machines_want_to_know_how_many_and_where(start: Start, tmp_path: Path) -> None:
    script = start("several_machines.sh", tmp_path / "run")
    said, _ = script.communicate(timeout=20)
    assert script.returncode != 0
    assert "set MACHINES to the number of machines, e.g. MACHINES=4" in said


@pytest.mark.slow
def test_a_preemptible_machine_saves_when_the_notice_comes(start: Start, tmp_path: Path) -> None:
    run, notice = tmp_path / "run", tmp_path / "notice"
    script = start(
        "preemptible_machine.sh", run, *LONG, NOTICE=f"test -e {notice}", EVERY=1, RESTARTS=0
    )
    wait_for_steps(run)
    notice.touch()
    said, _ = script.communicate(timeout=60)
    assert script.returncode == 128 + signal.SIGTERM, said
    assert "this machine is about to be taken away; saving" in said
    assert last_checkpoint(run).step == saved_step(said)


@pytest.mark.slow
def test_a_preemptible_machine_starts_again_after_a_crash_and_ends_on_sigterm(
    start: Start, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    script = start("preemptible_machine.sh", run, *LONG, RESTARTS=1)
    wait_for_steps(run)
    launcher = child_of(script.pid)
    os.kill(children_of(launcher)[1], signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{launcher}").exists(), "the launcher did not end")
    wait_for_steps(run)
    script.terminate()
    said, _ = script.communicate(timeout=60)
    assert script.returncode == 128 + signal.SIGTERM, said
    assert "preemptible_machine.sh: training ended with status 1" in said
    assert said.count("resumed at step") == 1
    assert last_checkpoint(run).step == saved_step(said)


@pytest.mark.slow
def test_a_task_of_slurm_saves_when_its_time_is_up_and_is_queued_again(
    start: Start, tmp_path: Path
) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, line in (
        ("srun", f'exec "{sys.executable}" "{ROOT / "tests" / "local_srun.py"}" "$@"'),
        ("scontrol", f'echo "$@" > "{tmp_path / "scontrol"}"'),
    ):
        (commands / name).write_text(f"#!/bin/sh\n{line}\n")
        (commands / name).chmod(0o755)
    run = tmp_path / "run"
    job = {"SLURM_JOB_ID": os.getpid(), "SLURM_NTASKS": 2, "SLURM_CPUS_PER_TASK": 2}
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    script = start("slurm.sh", run, *LONG, **job, PATH=path)
    wait_for_steps(run)
    os.kill(child_of(script.pid), signal.SIGTERM)  # as --signal=TERM@120 does
    said, _ = script.communicate(timeout=60)
    assert script.returncode == 128 + signal.SIGTERM, said
    assert "2 processes (DDP) on cpu" in said
    assert last_checkpoint(run).step == saved_step(said)
    assert (tmp_path / "scontrol").read_text() == f"requeue {os.getpid()}\n"
