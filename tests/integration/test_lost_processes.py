"""A process that is killed, late, missing or different: one line in bounded time, nothing lost."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.data.synthetic import write_folder
from attmask.monitor import read_metrics
from tests.processes import (
    ROOT,
    children_of,
    finish_group,
    free_port,
    start_group,
    steps_logged,
    wait_for,
)
from tests.runs import SHORT, environment, last_checkpoint, same_tensors

RUN_COMMAND = ["-m", "attmask"]
QUICK = (*SHORT, "monitor.knn_every_epochs=0")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_folder(folder, train=48, val=10, size=32, seed=0)
    return folder


def pretrain(images: Path, out: Path, *more: str | Path) -> list[str | Path]:
    return [*RUN_COMMAND, "pretrain", images, "--recipe", "tiny", "--out", out, *QUICK, *more]


def torchrun(words: Sequence[str | Path], *options: str) -> subprocess.Popen[str]:
    module, name, *rest = words
    return subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *options, *map(str, (module, name, *rest))],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def undisturbed(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes to its end."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    ended = finish_group(start_group(pretrain(images, run, "schedule.epochs=3"), 2), 120)
    assert [status for status, _ in ended] == [0, 0], ended
    return run


@pytest.fixture
def agents() -> Iterator[list[subprocess.Popen[str]]]:
    """Agents that are killed in the end, with all they have started."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for agent in started:
        for worker in children_of(agent.pid):  # each leads a session of its own
            os.kill(worker, signal.SIGKILL)
        agent.kill()
        agent.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_is_restarted_and_the_run_ends_with_the_same_bits(
    victim: int,
    images: Path,
    undisturbed: Path,
    tmp_path: Path,
    agents: list[subprocess.Popen[str]],
) -> None:
    run = tmp_path / "run"
    words = pretrain(images, run, "schedule.epochs=3", "checkpoint.every_minutes=0")
    agent = torchrun(words, "--standalone", "--nproc-per-node=2", "--max-restarts=2")
    agents.append(agent)
    wait_for(lambda: steps_logged(run) >= 4, "the run did not begin")
    os.kill(children_of(agent.pid)[victim], signal.SIGKILL)
    said, _ = agent.communicate(timeout=120)
    assert agent.returncode == 0, said
    assert "resumed at step" in said
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))


@pytest.mark.slow
def test_two_agents_train_as_two_machines_and_survive_a_killed_worker(
    images: Path, undisturbed: Path, tmp_path: Path, agents: list[subprocess.Popen[str]]
) -> None:
    run = tmp_path / "run"
    words = pretrain(images, run, "schedule.epochs=3", "checkpoint.every_minutes=0")
    options = [
        "--nnodes=2",
        "--nproc-per-node=1",
        "--max-restarts=2",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint=127.0.0.1:{free_port()}",
        "--rdzv-id=test",
    ]
    agents += [torchrun(words, *options, "--local-addr=127.0.0.1") for _ in range(2)]
    wait_for(lambda: steps_logged(run) >= 4, "the run did not begin")
    os.kill(children_of(agents[1].pid)[0], signal.SIGKILL)
    said = [agent.communicate(timeout=150)[0] for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], "\n".join(said)
    assert "resumed at step" in "".join(said)
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))


# Faults


def lines_of(ended: Sequence[tuple[int, str]]) -> list[str]:
    """What all processes said of an error; all must have failed without a traceback."""
    assert all(status == 1 for status, _ in ended), ended
    text = "".join(said for _, said in ended)
    assert "Traceback" not in text, text
    return [line for line in text.splitlines() if line.startswith("attmask: ")]


def test_a_process_that_never_comes_is_one_line_in_bounded_time(
    images: Path, tmp_path: Path
) -> None:
    words = pretrain(images, tmp_path / "run", "train.start_timeout_minutes=0.05")
    began = time.monotonic()
    (line,) = lines_of(finish_group(start_group(words, 2, ranks=[0]), 60))
    assert time.monotonic() - began < 40
    assert re.search(
        r"2 processes were launched, but not all of them met within 3 s at 127\.0\.0\.1:\d+; see "
        r"whether one .* or raise train\.start_timeout_minutes$",
        line,
    )


@pytest.mark.parametrize(
    ("rank_1", "wanted"),
    [
        (["seed=3"], r"process 1 of 2 has other settings than process 0 \(seed: 3, there 0\); "),
        (["OTHER"], r"process 1 of 2 has other images than process 0 \(40 of them, there 48\); "),
        (["MISSING"], r"process 1 of 2: .*MISSING"),
    ],
    ids=["settings", "images", "start-up"],
)
def test_a_process_that_differs_is_one_line_of_all(
    rank_1: list[str], wanted: str, images: Path, tmp_path: Path
) -> None:
    write_folder(tmp_path / "OTHER", train=40, val=10, size=32, seed=0)

    def words(rank: int) -> list[str | Path]:
        own = rank_1[0] if rank == 1 else ""
        data = tmp_path / own if own in ("OTHER", "MISSING") else images
        return pretrain(data, tmp_path / "run", *([own] if "=" in own else []))

    began = time.monotonic()
    (line,) = lines_of(finish_group(start_group(words, 2), 60))
    assert time.monotonic() - began < 40
    assert re.search(wanted, line), line


def test_a_batch_that_does_not_divide_is_one_line(images: Path, tmp_path: Path) -> None:
    words = pretrain(images, tmp_path / "run", "train.batch_size=9")
    (line,) = lines_of(finish_group(start_group(words, 2), 60))
    assert line == (
        "attmask: train.batch_size=9, which counts the images of all processes, cannot be divided "
        "among 2 processes; use 8 or 10"
    )


@pytest.mark.slow
def test_the_second_process_tells_that_the_main_one_is_lost(images: Path, tmp_path: Path) -> None:
    group = start_group(pretrain(images, tmp_path / "run", "schedule.epochs=3000"), 4)
    try:
        wait_for(lambda: steps_logged(tmp_path / "run") >= 4, "the run did not begin")
        group[0].kill()
        said = [process.communicate(timeout=60)[0] for process in group[1:]]
    finally:
        for process in group:
            process.kill()
    line = "attmask: another process has ended, so process 1 of 4 cannot go on; "
    assert said[0].startswith(line), said
    assert said[1:] == ["", ""], said


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stuck"])
def test_the_main_process_saves_when_another_one_is_lost(
    how: signal.Signals, images: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    more = ["schedule.epochs=3000", "train.timeout_minutes=0.05"]
    group = start_group(pretrain(images, run, *more), 2)
    try:
        wait_for(lambda: steps_logged(run) >= 4, "the run did not begin")
        group[1].send_signal(how)
        began = time.monotonic()
        said, _ = group[0].communicate(timeout=60)
        assert time.monotonic() - began < 30
    finally:
        for process in group:
            process.kill()
            process.communicate()
    assert group[0].returncode == 1
    assert "Traceback" not in said, said
    lost = "has ended" if how == signal.SIGKILL else "did not answer in time"
    assert re.search(
        rf"^attmask: another process {lost}, so process 0 of 2 cannot go on; ", said, re.MULTILINE
    )
    saved = re.search(r"saved at step (\d+) of", said)
    assert saved is not None
    assert last_checkpoint(run).step == int(saved[1])


@pytest.mark.slow
def test_processes_of_one_machine_need_no_launcher_and_evaluate_as_one(
    images: Path, undisturbed: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    more = ["schedule.epochs=3", "monitor.knn_every_epochs=3"]
    words = [*pretrain(images, run, *more), "--processes", "2"]
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"attmask: done, 18 steps; the backbone and all metrics are in {run}\n"
    assert "2 processes (DDP) on cpu" in done.stderr
    assert "Warning" not in done.stderr
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))
    assert main([*map(str, pretrain(images, tmp_path / "alone", *more)[2:])]) == 0
    ours, theirs = (evaluations(folder) for folder in (run, tmp_path / "alone"))
    assert len(ours) == len(theirs) == 2, "before the first step and after the last"
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-3)


def evaluations(run: Path) -> list[dict[str, float]]:
    return [
        {key: value for key, value in record.items() if key != "time"}
        for record in read_metrics(run)
        if "loss.total" not in record
    ]


@pytest.mark.parametrize("to", ["all", pytest.param("launcher", marks=pytest.mark.slow)])
def test_ctrl_c_saves_once_in_all_processes(to: str, images: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [*pretrain(images, run, "schedule.epochs=3000"), "--processes=2"]
    launcher = subprocess.Popen(
        [sys.executable, *map(str, words)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )
    try:
        wait_for(lambda: steps_logged(run) >= 4, "the run did not begin")
        if to == "all":  # as a terminal does
            os.killpg(launcher.pid, signal.SIGINT)
        else:
            launcher.send_signal(signal.SIGTERM)
        said, _ = launcher.communicate(timeout=60)
    finally:
        if launcher.poll() is None:
            os.killpg(launcher.pid, signal.SIGKILL)
    assert launcher.returncode == 128 + (signal.SIGINT if to == "all" else signal.SIGTERM), said
    assert "Traceback" not in said, said
    assert said.count("stopped and saved at step") == 1, said
    step = int(re.findall(r"saved at step (\d+)", said)[-1])
    assert last_checkpoint(run).step == step
