"""Whole runs among several processes that stop and go on in all ways; run as a script."""

import os
import signal
import sys
from pathlib import Path

import torch

from attmask import distributed
from attmask.data.sources import open_images
from attmask.loop import Outcome
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.train import Trainer
from tests.runs import SHORT

EPOCHS = ("schedule.epochs=2", "monitor.knn_every_epochs=0", "backbone.drop_path=0.2")
STOPPED_AFTER = 3


def train(images: Path, run: Path, *overrides: str, stop_after: int | None = None) -> Outcome:
    """Train in a run; the last process asks for a stop after so many steps."""
    config = override(load_recipe("tiny"), [*SHORT, *EPOCHS, *overrides])
    trainer = Trainer(config, open_images(images).train, run)
    learn = trainer.learn

    def stop_then_learn(*arguments: object, **settings: object) -> object:
        last = distributed.rank() == distributed.world_size() - 1
        if last and stop_after is not None and trainer.step == stop_after:
            os.kill(os.getpid(), signal.SIGTERM)
        return learn(*arguments, **settings)  # type: ignore[arg-type]

    trainer.learn = stop_then_learn  # type: ignore[assignment, method-assign]
    outcome = trainer.train()
    distributed.wait_for_all()
    return outcome


def saved_steps(images: Path, run: Path) -> list[int]:
    """The steps of a run that are saved where a checkpoint is due after three steps."""
    config = override(load_recipe("tiny"), [*SHORT, *EPOCHS])
    trainer = Trainer(config, open_images(images).train, run)
    save, steps = trainer.folder.save, list[int]()
    made = trainer.checkpoints
    made.is_due = lambda: trainer.step - (made.saved_step or 0) >= 3  # type: ignore[method-assign]

    def note_and_save(step: int, *arguments: object, **settings: object) -> None:
        steps.append(step)
        save(step, *arguments, **settings)  # type: ignore[arg-type]

    trainer.folder.save = note_and_save  # type: ignore[method-assign]
    trainer.train()
    return steps


def main(images: Path, folder: Path) -> None:
    """Runs of each engine: undisturbed, stopped and resumed, stopped only, and from one process."""
    ddp, fsdp = (), ("train.sharding=fsdp",)
    with distributed.processes(torch.device("cpu")):
        assert saved_steps(images, folder / "saves") == [4, 8, 12], "known to all a step later"
        for name, own, other in (("ddp", ddp, fsdp), ("fsdp", fsdp, ddp)):
            assert train(images, folder / name, *own).finished
            for end in ("again", "stopped", "switched"):
                stopped = train(images, folder / f"{name}-{end}", *own, stop_after=STOPPED_AFTER)
                assert not stopped.finished
                assert stopped.steps == STOPPED_AFTER + 2, "known to all a step later"
            assert train(images, folder / f"{name}-again", *own).finished
            assert train(images, folder / f"{name}-switched", *other).finished
            assert train(images, folder / f"one-{name}", *own).finished, "begun by one process"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
