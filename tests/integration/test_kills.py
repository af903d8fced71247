"""SIGKILL at random moments, also in the middle of a save: the run ends with the same bits."""

import os
import random
import re
import signal
import time
from pathlib import Path

import pytest

from attmask import checkpoint
from attmask.data.synthetic import write_folder
from tests.processes import free_port
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

SETTINGS = (*SHORT, "monitor.knn_every_epochs=0", "checkpoint.every_minutes=0")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_folder(folder, train=48, val=10, size=32, seed=0)
    return folder


def start(images: Path, run: Path, said: Path, *, processes: int, epochs: int) -> list[Forked]:
    """The processes of a run, each saving after every step."""
    words = ["pretrain", str(images), "--recipe", "tiny", "--out", str(run), *SETTINGS]
    common = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(free_port()), "LOCAL_WORLD_SIZE": str(processes)}
    return [
        Forked(
            said / f"said-{rank}",
            *words,
            f"schedule.epochs={epochs}",
            "train.timeout_minutes=0.2",
            environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(processes)
    ]


def is_saving(run: Path) -> bool:
    """Whether a checkpoint is being written now."""
    return any(run.glob("checkpoints/.part-*"))


def kill_and_resume(
    images: Path, run: Path, said: Path, *, processes: int, epochs: int, kills: int
) -> tuple[int, int]:
    """Kill a run so often at random moments, then let it end; how many kills hit a save, and how
    many came before their process had saved a step."""
    draw = random.Random(processes)
    in_save = early = 0
    for number in range(kills):
        saved = checkpoint.newest(run / "checkpoints")
        before = 0 if saved is None else int(saved.name[5:])
        group = start(images, run, said, processes=processes, epochs=epochs)
        # Most kills are aimed at a moment within the next few steps; some at the start.
        goal = before + draw.randint(0, 12 * epochs // kills)
        until = time.monotonic() + 60
        while any(each.poll() is None for each in group) and time.monotonic() < until:
            newest = checkpoint.newest(run / "checkpoints")
            reached = 0 if newest is None else int(newest.name[5:])
            if goal == before or reached >= goal:
                break
            time.sleep(0.002)
        time.sleep(draw.random() * (1.0 if goal == before else 0.05))
        if number % 2:  # every second one waits for the middle of a save
            waited = time.monotonic() + 1
            while not is_saving(run) and time.monotonic() < waited:
                pass
        victims = group if draw.random() < 0.5 else [draw.choice(group)]
        for victim in victims:
            if victim.poll() is None:
                os.kill(victim.pid, signal.SIGKILL)
        in_save += is_saving(run)
        told = [each.finish()[1] for each in group]
        assert not any("Traceback" in text for text in told), told
        after = checkpoint.newest(run / "checkpoints")
        early += after is None or int(after.name[5:]) == before
        steps = [int(n) for text in told for n in re.findall(r"resumed at step (\d+)", text)]
        assert set(steps) <= {before}, "from the newest checkpoint"
    group = start(images, run, said, processes=processes, epochs=epochs)
    assert [each.finish()[0] for each in group] == [0] * processes
    return in_save, early


@pytest.mark.parametrize(
    ("processes", "epochs", "kills"),
    [
        (1, 5, 4),
        pytest.param(1, 20, 24, marks=pytest.mark.slow),
        pytest.param(2, 20, 24, marks=pytest.mark.slow),
    ],
)
def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bits(
    images: Path, tmp_path: Path, processes: int, epochs: int, kills: int
) -> None:
    undisturbed, run = tmp_path / "undisturbed", tmp_path / "run"
    for each in start(images, undisturbed, tmp_path, processes=processes, epochs=epochs):
        assert each.finish()[0] == 0
    in_save, early = kill_and_resume(
        images, run, tmp_path, processes=processes, epochs=epochs, kills=kills
    )
    assert last_checkpoint(run).step == 6 * epochs
    assert same_tensors(last_checkpoint(run), last_checkpoint(undisturbed))
    assert in_save >= kills // 4, "some in the middle of a save"
    assert early < kills, "and some after progress"
    assert not any(run.glob("**/.part-*")), "nothing is left"


def test_a_second_ctrl_c_ends_at_once_and_the_last_checkpoint_is_whole(
    images: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["pretrain", str(images), "--recipe", "tiny", "--out", str(run), *SETTINGS]
    process = Forked(tmp_path / "said", *words, "schedule.epochs=3000")
    while checkpoint.newest(run / "checkpoints") is None and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGSTOP)  # so that both arrive before the step ends
    for _ in range(2):
        os.kill(process.pid, signal.SIGINT)
        time.sleep(0.01)
        os.kill(process.pid, signal.SIGCONT)
    began = time.monotonic()
    status, said = process.finish()
    assert time.monotonic() - began < 20
    assert (status, "Traceback" in said) == (130, False), said
    assert said.endswith(("attmask: stopped\n", "run the same command to resume\n"))
    found = checkpoint.load_newest(run / "checkpoints")
    assert found is not None
    checkpoint.verify(run / "checkpoints" / f"step-{found.step:08d}")


def test_sigterm_is_answered_with_a_checkpoint_within_seconds(images: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["pretrain", str(images), "--recipe", "tiny", "--out", str(run), *SHORT]
    more = ["monitor.knn_every_epochs=0", "checkpoint.every_minutes=60", "schedule.epochs=3000"]
    process = Forked(tmp_path / "said", *words, *more)
    while not (run / "metrics.jsonl").exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.5)
    began = time.monotonic()
    os.kill(process.pid, signal.SIGTERM)
    status, said = process.finish()
    assert time.monotonic() - began < 10
    assert status == 128 + signal.SIGTERM
    assert f"stopped and saved at step {last_checkpoint(run).step} of 18000" in said
