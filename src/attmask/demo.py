"""A demo in minutes on a CPU: generate images, pre-train, evaluate, draw attention."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attmask import atomic
from attmask.data.sources import open_images
from attmask.data.synthetic import MANIFEST, write_folder
from attmask.errors import UserError
from attmask.evaluation.online import OnlineEvaluation
from attmask.html_report.on_the_way import REPORT, ReportsOnTheWay
from attmask.html_report.report import write_report
from attmask.loop import Outcome
from attmask.monitor import read_metrics
from attmask.presence import hold
from attmask.recipe import load_recipe
from attmask.run_baselines import keep_baselines, read_baselines
from attmask.run_config import override
from attmask.train import Trainer
from attmask.visualization.overview import save_attention_pictures

TRAIN_IMAGES = 2000
VAL_IMAGES = 1000
IMAGE_SIZE = 64
PICTURES = 8
MARK = "demo.json"


@dataclass(frozen=True)
class DemoReport:
    """Results of a demo; `before` and `after` are the log records of the two evaluations."""

    images: Path
    run: Path
    pictures: Sequence[Path]
    page: Path
    """The report of the run, one HTML file."""
    baselines: dict[str, float]
    """k-NN accuracy of the baselines (chance, colours, raw pixels), in per cent."""
    before: dict[str, Any]
    after: dict[str, Any]


class Demo:
    """Generated images, a run of AttMask-High on them, and its evaluation; resumes like any run.

    The seed also determines the images.
    """

    def __init__(self, out: Path, *, seed: int = 0, overrides: Sequence[str] = ()) -> None:
        config = override(load_recipe("demo"), [f"seed={seed}", *overrides])
        if config.monitor.knn_every_epochs == 0:
            raise UserError(
                "monitor.knn_every_epochs=0 turns off the evaluation that the demo reports; use 1"
            )
        _begin(out)
        self.out = out
        self.config = config
        write_folder(out / "images", train=TRAIN_IMAGES, val=VAL_IMAGES, size=IMAGE_SIZE, seed=seed)
        self.images = open_images(out / "images")
        self.trainer = Trainer(config, self.images.train, out / "run")
        self.trainer.folder.keep_origin(out / "images")
        self.evaluation = OnlineEvaluation(
            self.images,
            config.data,
            config.monitor,
            image_size=config.views.global_size,
            workers=self.trainer.workers,
        )

    def train(self) -> Outcome:
        """Pre-train, or resume."""
        with hold(self.out / "run", self.trainer.heartbeat):
            keep_baselines(self.out / "run", self.evaluation.baselines)
            reports = ReportsOnTheWay(self.out / "run", self.config)
            return self.trainer.train(self.evaluation, reports)

    def report(self) -> DemoReport:
        """Compare the trained teacher with the untrained one and with baselines."""
        run, val, config = self.out / "run", self.images.held_out, self.config
        assert val is not None
        measured = [record for record in read_metrics(run) if "knn.top1" in record]
        if not measured:
            raise UserError(f"{run} has no evaluation in its metrics; choose another --out")
        before, after = measured[0], measured[-1]
        pictures = save_attention_pictures(
            self.trainer.teacher,
            val,
            range(0, len(val), max(1, len(val) // PICTURES))[:PICTURES],
            self.out / "pictures",
            image_size=config.views.global_size,
            data=config.data,
        )
        return DemoReport(
            images=self.out / "images",
            run=run,
            pictures=pictures,
            page=write_report([run], run / REPORT, title="attmask demo"),
            baselines=read_baselines(run),
            before=before,
            after=after,
        )


def _begin(out: Path) -> None:
    """Mark an empty folder as a demo's; raise an error if it holds anything else."""
    marks = (out / MARK, out / "images" / MANIFEST)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(mark.is_file() for mark in marks):
            return
        if any(out.iterdir()):
            raise UserError(f"{out} is not empty and holds no demo; choose another --out")
        atomic.write(marks[0], json.dumps({"made by": "attmask demo"}) + "\n")
    except OSError as fault:
        why = fault.strerror or fault
        raise UserError(f"cannot use {out} for a demo: {why}; choose another --out") from fault
