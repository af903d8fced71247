"""A small run that was trained in two sessions, for the tests of its report."""

from pathlib import Path

import pytest

from attmask.api import pretrain, resume
from tests.runs import SHORT


def train(images: Path, run: Path, *more: str) -> Path:
    """A run of the recipe tiny."""
    overrides = [*SHORT, "schedule.epochs=2", *more]
    pretrain(images, recipe="tiny", out=run, overrides=overrides)
    return run


@pytest.fixture(scope="session")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two epochs, made longer by one."""
    folder = tmp_path_factory.mktemp("runs") / "high"
    train(scenes, folder, "checkpoint.keep_every_epochs=1")
    resume(folder, overrides=["schedule.epochs=3"], extend=True)
    return folder
