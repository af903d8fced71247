"""Small runs: a few generated images, the recipe `tiny`, and the command as a real process."""

import multiprocessing
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from attmask import checkpoint
from attmask.checkpoint import BEST, WEIGHTS, Checkpoint
from attmask.cli import main
from attmask.config import PretrainConfig
from attmask.run_config import from_yaml, override, to_yaml

SOURCE = Path(__file__).parent.parent / "src"
COMMAND = [sys.executable, "-c", "import sys; from attmask.cli import main; sys.exit(main())"]
SHORT = (
    "train.batch_size=8",
    "train.workers=0",
    "train.threads=1",
    "monitor.tensorboard=false",
    "monitor.report_every_epochs=0",
)


def environment() -> dict[str, str]:
    """This process's environment, with our source first and sums in one order."""
    return {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a shell would start it."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, output and errors, once it has ended."""
    try:
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    return process.returncode, out, err


class Forked:
    """The command in a fork of this process: it has a session of its own, and need not import."""

    def __init__(
        self, said: Path, *arguments: str | Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.said = said
        words = [str(argument) for argument in arguments]
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=_command, args=(said, words, environment or {}))
        self.process.start()
        assert self.process.pid is not None
        self.pid = self.process.pid

    def poll(self) -> int | None:
        """The exit status, if it has ended."""
        return self.process.exitcode

    def finish(self) -> tuple[int | None, str]:
        """Exit status (a negative signal number if it was killed) and all it has said."""
        self.process.join(timeout=120)
        self.process.kill()
        return self.process.exitcode, self.said.read_text()


def _command(said: Path, words: list[str], environment: Mapping[str, str]) -> None:
    os.setsid()
    os.environ.update(environment)
    with said.open("w") as file:
        sys.stdout = sys.stderr = file
        sys.exit(main(words))


def last_checkpoint(run: Path) -> Checkpoint:
    """The newest checkpoint of a run."""
    found = checkpoint.load_newest(run / "checkpoints")
    assert found is not None
    return found


def same_tensors(ours: Checkpoint, theirs: Checkpoint) -> bool:
    """Whether two checkpoints hold the same weights and optimiser state, to the bit."""
    return ours.tensors.keys() == theirs.tensors.keys() and all(
        _same(ours.tensors[name][key], theirs.tensors[name][key])
        for name in ours.tensors
        for key in ours.tensors[name].keys() | theirs.tensors[name].keys()
    )


def _same(ours: Tensor, theirs: Tensor) -> bool:
    return ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def changed_copy(run: Path, folder: Path, *overrides: str) -> Path:
    """A copy of a pre-training run whose config.yaml has other settings."""
    shutil.copytree(run, folder)
    config = override(from_yaml(run / "config.yaml", PretrainConfig), overrides)
    (folder / "config.yaml").write_text(to_yaml(config))
    return folder


def guarded_copy(run: Path, folder: Path) -> Path:
    """A copy with a guard, whose best network is half of its teacher."""
    changed_copy(run, folder, "guard.patience=2", "monitor.knn_every_epochs=1")
    last = last_checkpoint(folder)
    halved = {name: tensor / 2 for name, tensor in last.tensors[WEIGHTS].items()}
    checkpoint.save(folder / BEST, Checkpoint(1, {WEIGHTS: halved}, last.info), keep=1)
    return folder
