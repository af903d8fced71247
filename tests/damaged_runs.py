"""Damages of a newest checkpoint, and runs that meet them; run as a script by several processes."""

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from attmask import distributed
from attmask.data.sources import open_images
from attmask.loop import Outcome
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.train import Trainer
from tests.runs import SHORT

SETTINGS = ("monitor.knn_every_epochs=0", "checkpoint.every_minutes=0")
NEWEST, BEFORE = "step-00000012", "step-00000011"
STEPS = 12


def _flip(folder: Path) -> None:
    data = bytearray((folder / "weights.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "weights.safetensors").write_bytes(data)


def _truncate(folder: Path) -> None:
    data = (folder / "weights.safetensors").read_bytes()
    (folder / "weights.safetensors").write_bytes(data[: len(data) // 2])


def _lose(folder: Path) -> None:
    (folder / "weights.safetensors").unlink()


def _empty(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def _break_state(folder: Path) -> None:
    (folder / "state.json").write_text("{")


DAMAGES: Mapping[str, tuple[Callable[[Path], None], str]] = {
    "flipped": (_flip, "weights.safetensors is not as it was written"),
    "truncated": (_truncate, "weights.safetensors is not as it was written"),
    "missing": (_lose, "weights.safetensors is missing"),
    "empty": (_empty, "state.sha256 is missing"),
    "state": (_break_state, "state.json is not as it was written"),
}
"""What is done to the newest checkpoint, and why it is called damaged."""


def damage(whole: Path, run: Path, kind: str) -> None:
    """A copy of a finished run whose newest checkpoint is damaged."""
    shutil.copytree(whole, run)
    DAMAGES[kind][0](run / "checkpoints" / NEWEST)


def train(images: Path, run: Path) -> Outcome:
    """Train to the end, from what is there."""
    config = override(load_recipe("tiny"), [*SHORT, *SETTINGS])
    outcome = Trainer(config, open_images(images).train, run).train()
    distributed.wait_for_all()
    return outcome


def main(images: Path, folder: Path) -> None:
    """An undisturbed run, and one for each damage."""
    with distributed.processes(torch.device("cpu")):
        assert train(images, folder / "whole").finished
        for kind in DAMAGES:
            if distributed.is_main():
                damage(folder / "whole", folder / kind, kind)
            distributed.wait_for_all()
            outcome = train(images, folder / kind)
            assert (outcome.first_step, outcome.steps) == (STEPS - 1, STEPS)


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    main(Path(sys.argv[1]), Path(sys.argv[2]))
