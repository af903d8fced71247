"""A run is made longer: new schedules from the step reached on, told, recorded and resumable."""

import os
import signal
from pathlib import Path

import pytest

from attmask.cli import main
from attmask.config import PretrainConfig
from attmask.history import read_history
from attmask.monitor import read_metrics
from attmask.run_config import from_yaml
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

SETTINGS = (*SHORT, "monitor.knn_every_epochs=0", "checkpoint.every_minutes=0")


@pytest.fixture
def run(scenes: Path, tmp_path: Path) -> Path:
    """A finished run of two epochs of six steps."""
    run = tmp_path / "run"
    words = ["pretrain", str(scenes), "--recipe", "tiny", "--out", str(run), *SETTINGS]
    assert main(words) == 0
    return run


def rates(run: Path) -> dict[int, float]:
    return {r["step"]: r["schedule.lr"] for r in read_metrics(run) if "schedule.lr" in r}


def test_a_finished_run_trains_longer_with_the_schedules_of_the_longer_training(
    scenes: Path, run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = rates(run)
    with caplog.at_level("INFO"):
        assert main(["resume", str(run), "--extend", "schedule.epochs=4"]) == 0
    assert "extended from 2 to 4 epochs: from step 12 on, schedules are those of a " in caplog.text
    assert "training of 24 steps (learning rate 1e-06 -> " in caplog.text
    assert "teacher momentum 1 -> 0.99" in caplog.text
    words = ["pretrain", str(scenes), "--recipe", "tiny", "--out", str(tmp_path / "long")]
    assert main([*words, *SETTINGS, "schedule.epochs=4"]) == 0
    long = rates(tmp_path / "long")
    assert rates(run) == {step: (short if step < 12 else long)[step] for step in range(24)}
    assert last_checkpoint(run).step == 24
    assert from_yaml(run / "config.yaml", PretrainConfig).schedule.epochs == 4
    (extension,) = read_history(run).extensions
    assert (extension.step, extension.epochs_before, extension.epochs) == (12, 2, 4)


def test_more_epochs_alone_are_refused_with_the_word_to_add(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(run), "schedule.epochs=4"]) == 1
    said = capsys.readouterr().err
    assert "(schedule.epochs: 2 in the run, 4 given); add --extend to train longer" in said
    assert last_checkpoint(run).step == 12


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["schedule.epochs=1"], "holds a run of 2 epochs, and --extend only makes it longer"),
        (["schedule.epochs=4", "seed=3"], "(seed: 0 in the run, 3 given); choose another --out"),
    ],
)
def test_extend_allows_nothing_but_more_epochs(
    run: Path, words: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(run), "--extend", *words]) == 1
    assert wanted in capsys.readouterr().err
    assert from_yaml(run / "config.yaml", PretrainConfig).schedule.epochs == 2


@pytest.mark.slow
def test_the_same_command_resumes_an_extended_run_that_was_killed_to_the_bit(
    run: Path, scenes: Path, tmp_path: Path
) -> None:
    words = ["pretrain", str(scenes), "--recipe", "tiny", "--out", str(run), *SETTINGS]
    longer = [*words, "--extend", "schedule.epochs=8"]
    killed = Forked(tmp_path / "said", *longer)
    while last_checkpoint(run).step < 15 and killed.poll() is None:
        pass
    os.kill(killed.pid, signal.SIGKILL)
    killed.finish()
    assert 15 <= last_checkpoint(run).step < 48
    assert main(longer) == 0
    assert len(read_history(run).extensions) == 1, "once"
    other = tmp_path / "other"
    assert main(["pretrain", *words[1:4], "--out", str(other), *SETTINGS]) == 0
    assert main(["resume", str(other), "--extend", "schedule.epochs=8"]) == 0
    assert same_tensors(last_checkpoint(run), last_checkpoint(other))
