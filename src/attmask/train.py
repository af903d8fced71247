"""Pre-training: one step that reads like the paper, and the loop around it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.optim import Optimizer

from attmask import checkpoint, distributed
from attmask.checkpoint import Checkpoint
from attmask.config import PretrainConfig, differences, from_yaml, to_yaml
from attmask.data.decode import check_readable
from attmask.data.loader import Loader
from attmask.data.sources import Source
from attmask.data.views import Views
from attmask.distill import Distiller, Losses
from attmask.errors import UserError
from attmask.hardware import Precision, choose_device, cores
from attmask.interrupt import stop_signals
from attmask.models.backbone import Backbone, build_backbone
from attmask.models.network import Network
from attmask.monitor import Monitor, Pace, read_metrics
from attmask.optim import (
    build_optimizer,
    clip_each_parameter_,
    load_optimizer_tensors,
    optimizer_tensors,
    set_rates,
)
from attmask.schedules import Now, Schedules

log = logging.getLogger(__name__)

Evaluate = Callable[[Backbone, Callable[[], AbstractContextManager[object]]], dict[str, float]]
"""Measures the teacher's backbone on the way, under the run's autocast; gives numbers to log."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    run: Path
    steps: int
    total_steps: int

    @property
    def finished(self) -> bool:
        """Whether training came to its end; if not, the same command goes on."""
        return self.steps == self.total_steps


def train_step(
    distiller: Distiller,
    optimizer: Optimizer,
    views: Views,
    now: Now,
    precision: Precision,
    *,
    accumulate: int = 1,
    clip: float | None = None,
) -> list[Losses]:
    """Teacher, mask, student, losses for each micro-batch; then one update of everything."""
    set_rates(optimizer, lr=now.lr, weight_decay=now.weight_decay)
    optimizer.zero_grad(set_to_none=True)
    images = views.globals.shape[1]
    first_image = distributed.rank() * images
    losses = []
    for part in views.split(accumulate):
        with precision.autocast():
            loss = distiller(part.globals, part.locals, now, first_image)
        precision.backward(loss.total / accumulate)
        first_image += images // accumulate
        losses.append(loss)
    if now.last_layer_frozen:
        for parameter in distiller.student.last_layers():
            parameter.grad = None
    precision.unscale_(optimizer)
    if clip is not None:
        clip_each_parameter_(distiller.student.parameters(), clip)
    precision.step(optimizer)
    distiller.update_teacher_(now.momentum)
    distiller.update_centres_()
    return losses


def build_distiller(config: PretrainConfig) -> Distiller:
    """Student and teacher with the initial weights of the config's seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = build_backbone(
            config.backbone,
            image_size=config.views.global_size,
            channels=config.data.channels,
            layer=config.masking.layer,
        )
        student = Network(backbone, config.head)
    masker = config.masking.build(config.seed)
    return Distiller(
        student, masker, config.loss, drop_path=config.backbone.drop_path, seed=config.seed
    )


def _first_of_each_class(source: Source, count: int | None) -> Source:
    """The subset that a recipe (20 % of ImageNet) asks for; images without labels all stay."""
    if count is None:
        return source
    if source.labels is None:
        log.warning(
            "the images have no labels, so data.per_class=%d does not apply: all %d are used",
            count,
            len(source),
        )
        return source
    return source.first_per_class(count)


class Trainer:
    """A run: what it needs, where it stands, how it is saved and taken up again."""

    def __init__(self, config: PretrainConfig, source: Source, run: Path) -> None:
        distributed.require_one_process()
        self.config = config
        self.run = run
        self.device = choose_device(config.train.device)
        self.precision = Precision.choose(config.train.precision, self.device)
        if config.train.threads is not None:
            torch.set_num_threads(config.train.threads)
        source = _first_of_each_class(source, config.data.per_class)
        check_readable(source, config.data.channels)
        workers = config.train.workers
        self.loader = Loader(
            source,
            config.views,
            channels=config.data.channels,
            batch_size=config.train.batch_size,
            seed=config.seed,
            workers=max(1, cores() - 1) if workers is None else workers,
            rank=distributed.rank(),
            world=distributed.world_size(),
        )
        self.schedules = Schedules(
            config.schedule,
            steps_per_epoch=self.loader.steps_per_epoch,
            batch_size=config.train.batch_size,
        )
        self.distiller = build_distiller(config).to(self.device)
        self.optimizer = build_optimizer(self.distiller.student, config.optim)
        self.step = 0
        self._images = len(source)
        self._saved_step: int | None = None
        self._pace = Pace()
        try:
            self._prepare_run()
        except OSError as fault:
            why = fault.strerror or fault
            raise UserError(
                f"cannot use {run} for a run: {why}; make room or choose another --out"
            ) from fault
        if config.train.compile:
            self.distiller.student.backbone.compile_blocks()
            self.distiller.teacher.backbone.compile_blocks()

    @property
    def teacher(self) -> Backbone:
        """The backbone that is kept and evaluated."""
        return self.distiller.teacher.backbone

    def _prepare_run(self) -> None:
        """Take up the run that is there, or begin one; refuse to mix two."""
        saved = self.run / "config.yaml"
        if self.run.exists() and not self.run.is_dir():
            raise UserError(f"{self.run} is a file; choose another --out")
        if saved.exists():
            changed = differences(from_yaml(saved), self.config)
            if changed:
                raise UserError(
                    f"{self.run} holds a run with other settings ({'; '.join(changed)}); "
                    "choose another --out, or the same settings to go on"
                )
        elif self.run.exists() and any(self.run.iterdir()):
            raise UserError(f"{self.run} is not empty and holds no run; choose another --out")
        found = checkpoint.load_newest(self.run / "checkpoints")
        if found is not None:
            if found.info["images"] != self._images:
                raise UserError(
                    f"{self.run} holds a run on {found.info['images']} images, these are "
                    f"{self._images}; choose another --out, or the same images to go on"
                )
            self.distiller.load_state_dict(dict(found.tensors["weights"]))
            tensors = dict(found.tensors["optimizer"])
            load_optimizer_tensors(self.optimizer, self.distiller.student, tensors)
            self.precision.scaler.load_state_dict(found.info["scaler"])
            self.step = self._saved_step = found.step
        if distributed.is_main():
            self.run.mkdir(parents=True, exist_ok=True)
            beside = self.run / ".config.yaml.part"  # a full disk must not spoil the one there is
            try:
                beside.write_text(to_yaml(self.config))
                beside.replace(saved)
            finally:
                beside.unlink(missing_ok=True)

    def save(self) -> None:
        """Write a checkpoint of the step reached, unless it is there already."""
        if not distributed.is_main() or self._saved_step == self.step:
            return
        tensors = {
            "weights": self.distiller.state_dict(),
            "optimizer": optimizer_tensors(self.optimizer, self.distiller.student),
        }
        if not all(tensor.isfinite().all() for tensor in tensors["weights"].values()):
            raise UserError(
                f"the weights are not finite after step {self.step} and were not saved; start "
                "again with a lower schedule.lr or with train.precision=fp32"
            )
        info = {"scaler": self.precision.scaler.state_dict(), "images": self._images}
        folder = self.run / "checkpoints"
        checkpoint.save(
            folder, Checkpoint(self.step, tensors, info), keep=self.config.checkpoint.keep
        )
        self._saved_step = self.step

    def train(self, evaluate: Evaluate | None = None) -> Outcome:
        """Train to the end, or until told to stop; either way the last step is saved."""
        schedules, config = self.schedules, self.config
        total = schedules.steps
        monitor = Monitor(self.run, config.monitor, total_steps=total, start_step=self.step)
        with monitor, stop_signals() as stopped:
            if self.step % schedules.steps_per_epoch == 0 and not self._is_evaluated():
                self._evaluate(evaluate, monitor)
            self._pace.restart(self.step, self.loader.waited_seconds)
            saved_at = time.monotonic()
            while self.step < total and not stopped():
                epoch, done = divmod(self.step, schedules.steps_per_epoch)
                for views in self._views(epoch, done):
                    self._one_step(views, monitor)
                    minutes = (time.monotonic() - saved_at) / 60
                    if minutes >= config.checkpoint.every_minutes and self.step < total:
                        self.save()
                        saved_at = time.monotonic()
                    if stopped() and self.step < total:
                        break
                else:
                    self._evaluate(evaluate, monitor)
            self.save()
        return Outcome(self.run, self.step, total)

    def _views(self, epoch: int, done: int) -> Iterator[Views]:
        for batch in self.loader.epoch(epoch, done):
            yield batch.views.to(self.device).normalise(self.config.data.mean, self.config.data.std)

    def _one_step(self, views: Views, monitor: Monitor) -> None:
        config, now = self.config, self.schedules.at(self.step)
        losses = train_step(
            self.distiller,
            self.optimizer,
            views,
            now,
            self.precision,
            accumulate=config.train.accumulate,
            clip=config.optim.clip,
        )
        if monitor.due(self.step):
            self._report(losses, now, monitor)
        self.step += 1

    def _report(self, losses: list[Losses], now: Now, monitor: Monitor) -> None:
        """Log the step, after it was computed, and show it."""
        means = {
            name: float(torch.stack([getattr(part, name).detach() for part in losses]).mean())
            for name in ("total", "cls", "patch", "hidden", "teacher_entropy", "prototypes_used")
        }
        monitor.check_finite(now.step, means["total"])
        speed, waiting = self._pace.measure(self.step + 1, self.loader.waited_seconds)
        images_per_second = speed * self.config.train.batch_size
        names = {"total": "loss/total", "cls": "loss/cls", "patch": "loss/patch"}
        monitor.log(
            step=now.step,
            epoch=now.epoch,
            **{names.get(name, f"health/{name}"): value for name, value in means.items()},
            **{
                "schedule/lr": now.lr,
                "schedule/weight_decay": now.weight_decay,
                "schedule/momentum": now.momentum,
                "schedule/cls_temperature": now.cls_temperature,
                "schedule/patch_temperature": now.patch_temperature,
                "speed/images_per_second": images_per_second,
                "speed/waiting_share": waiting,
            },
        )
        monitor.progress(self.step + 1, means["total"], images_per_second, waiting)

    def _is_evaluated(self) -> bool:
        """Whether the epoch that ends here was measured before the run was taken up again."""
        here = max(0, self.step - 1), self.step // self.schedules.steps_per_epoch
        return any(
            (record["step"], record["epoch"]) == here and "loss/total" not in record
            for record in read_metrics(self.run)
        )

    def _evaluate(self, evaluate: Evaluate | None, monitor: Monitor) -> None:
        """Measure the teacher before the first step and after each epoch that is due."""
        epoch = self.step // self.schedules.steps_per_epoch
        every = self.config.monitor.knn_every_epochs
        last = self.step == self.schedules.steps
        if evaluate is None or not distributed.is_main() or every == 0:
            return
        if epoch % every and not last:
            return
        numbers = evaluate(self.teacher, self.precision.autocast)
        if numbers:
            # Under the last step that is done, so that a resumed run keeps it.
            monitor.log(step=max(0, self.step - 1), epoch=epoch, **numbers)
            said = ", ".join(f"{name} {value:.4g}" for name, value in numbers.items())
            monitor.message(f"epoch {epoch}: {said}")
        self._pace.restart(self.step, self.loader.waited_seconds)
