"""The whole thing in minutes on a CPU: make images, pre-train, compare, draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attmask.config import override
from attmask.data.sources import open_images
from attmask.data.synthetic import write_folder
from attmask.errors import UserError
from attmask.evaluation.online import OnlineEvaluation
from attmask.monitor import read_metrics
from attmask.recipe import load_recipe
from attmask.train import Outcome, Trainer
from attmask.visualize import save_attention_pictures

TRAIN_IMAGES = 4000
VAL_IMAGES = 1000
IMAGE_SIZE = 64
PICTURES = 8


@dataclass(frozen=True)
class DemoReport:
    """What a demo found: k-NN accuracies in per cent, shares of the object from 0 to 1."""

    outcome: Outcome
    images: Path
    pictures: Sequence[Path]
    untrained: float
    trained: float
    rivals: dict[str, float]
    objects_before: dict[str, float]
    objects_after: dict[str, float]


def run_demo(out: Path, *, seed: int = 0, overrides: Sequence[str] = ()) -> DemoReport | Outcome:
    """Generate images, pre-train on them with AttMask-High, evaluate; resumes like any run.

    An interrupted training gives its outcome alone. Other seeds have other images too.
    """
    config = override(load_recipe("demo"), [f"seed={seed}", *overrides])
    if config.monitor.knn_every_epochs == 0:
        raise UserError("monitor.knn_every_epochs=0 leaves the demo nothing to report; use 1")
    folder = out / "images"
    write_folder(folder, train=TRAIN_IMAGES, val=VAL_IMAGES, size=IMAGE_SIZE, seed=seed)
    images = open_images(folder)
    evaluation = OnlineEvaluation(
        images, config.data, config.monitor, image_size=config.views.global_size
    )
    trainer = Trainer(config, images.train, out / "run")
    outcome = trainer.train(evaluation)
    if not outcome.finished:
        return outcome
    measured = [record for record in read_metrics(out / "run") if "knn/top1" in record]
    before, after = measured[0], measured[-1]
    assert images.val is not None
    pictures = save_attention_pictures(
        trainer.teacher,
        images.val,
        range(0, len(images.val), max(1, len(images.val) // PICTURES))[:PICTURES],
        out / "pictures",
        image_size=config.views.global_size,
        mean=config.data.mean,
        std=config.data.std,
    )
    return DemoReport(
        outcome=outcome,
        images=folder,
        pictures=pictures,
        untrained=before["knn/top1"],
        trained=after["knn/top1"],
        rivals=evaluation.rivals(),
        objects_before=_objects(before),
        objects_after=_objects(after),
    )


def _objects(record: dict[str, Any]) -> dict[str, float]:
    return {k.removeprefix("object/"): v for k, v in record.items() if k.startswith("object/")}
