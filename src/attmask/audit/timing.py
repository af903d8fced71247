"""What a config costs on this machine: a few real steps with real batches, in a process of its own.

A process of its own has its own peak of memory, and where memory runs out it dies alone.
"""

import dataclasses
import itertools
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from attmask.audit.memory import peak_bytes, private_bytes
from attmask.config import PretrainConfig
from attmask.data.batch import Batch
from attmask.data.images import Images
from attmask.data.loader import Loader
from attmask.errors import UserError
from attmask.evaluation.features.forward import normalise
from attmask.evaluation.online import BATCH, crops_held
from attmask.train import Trainer

_SECONDS = 20.0  # for the loader alone, and again for the steps; a step that began is finished
_STEPS = 6
_USER_ERROR = 3


@dataclass(frozen=True)
class Timing:
    """What was measured, and what follows from it for an epoch and a run."""

    device: str
    precision: str
    batch_size: int
    workers: int
    batches_timed: int
    """Batches that were made with nothing else running."""
    steps_timed: int
    """Steps while the next batches were made, the first step left out where there were more."""
    step_seconds_min: float
    step_seconds_max: float
    """Far apart where other programs were at work."""
    loader_images_per_second: float
    network_images_per_second: float
    images_per_second: float
    """Expected of a run: the slower of the steps with their waiting and of the loader alone."""
    bottleneck: Literal["network", "data"]
    steps_per_epoch: int
    epochs: int
    epoch_seconds: float
    run_seconds: float
    process_bytes: int | None
    """Peak of the training process."""
    workers_bytes: int | None
    """What all workers had to themselves."""
    device_bytes: int | None
    """Peak on the accelerator."""


def time_steps(config: PretrainConfig, images: Images) -> Timing:
    """Train for some steps in another process and report; UserError where that fails."""
    # With all that a run imports, which is part of its memory.
    script = "import attmask.api; from attmask.audit.timing import main; main()"
    command = [sys.executable, "-c", script]
    # Where this process found attmask, that one must find it too.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.run(
        command,
        input=pickle.dumps((config, replace(images, found=None))),
        capture_output=True,
        env=environment,
        check=False,
    )
    if process.returncode == 0:
        return Timing(**json.loads(process.stdout.splitlines()[-1]))
    said = process.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
    if process.returncode == _USER_ERROR:
        raise UserError(said[-1])
    if process.returncode < 0:
        raise UserError(
            f"the steps to be timed were killed by signal {-process.returncode}, perhaps for want "
            f"of memory; use a smaller train.batch_size than {config.train.batch_size}"
        )
    raise RuntimeError(f"the steps to be timed failed: {said[-1]}")


def main() -> None:
    """The other process: config and images come in, one line of JSON goes out."""
    config, images = pickle.load(sys.stdin.buffer)
    problem, status = "", 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            trainer = Trainer(config, images.train, Path(folder) / "run")
            held = _crops_of_evaluation(config, images)
            _evaluate_a_batch(trainer)  # a run evaluates before its first step and after its last
            timing = measure(trainer)
            del held
        sys.stdout.write(f"{json.dumps(dataclasses.asdict(timing))}\n")
    except UserError as fault:
        problem, status = str(fault), _USER_ERROR
    except Exception:
        problem, status = traceback.format_exc(), 1
    # Not from inside `except`: an error in flight holds the loader, whose workers then outlive us.
    sys.stderr.write(problem)
    sys.exit(status)


def measure(trainer: Trainer) -> Timing:
    """Time the loader alone, then steps with the loader at work."""
    batches = _endless(trainer.loader)
    made, batch_seconds = _time_batches(batches, trainer.workers)
    steps, computed = _time_steps(batches, trainer)
    _step_with_the_largest_masks(next(batches), trainer)
    _evaluate_a_batch(trainer)
    trainer.save()  # a checkpoint is made in memory before it is written
    network_seconds = sum(computed) / len(computed)
    seconds = max(sum(steps) / len(steps), batch_seconds)
    batch, epochs = trainer.config.train.batch_size, trainer.config.schedule.epochs
    epoch_seconds = seconds * trainer.loader.steps_per_epoch
    workers = [private_bytes(child.pid or 0) for child in multiprocessing.active_children()]
    known = [size for size in workers if size is not None]
    return Timing(
        device=str(trainer.device),
        precision=trainer.precision.format,
        batch_size=batch,
        workers=trainer.workers,
        batches_timed=made,
        steps_timed=len(steps),
        step_seconds_min=min(steps),
        step_seconds_max=max(steps),
        loader_images_per_second=batch / batch_seconds,
        network_images_per_second=batch / network_seconds,
        images_per_second=batch / seconds,
        bottleneck="data" if batch_seconds > network_seconds else "network",
        steps_per_epoch=trainer.loader.steps_per_epoch,
        epochs=epochs,
        epoch_seconds=epoch_seconds,
        run_seconds=epoch_seconds * epochs,
        process_bytes=peak_bytes(),
        workers_bytes=sum(known) if len(known) == len(workers) else None,
        device_bytes=_device_bytes(trainer.device),
    )


def _crops_of_evaluation(config: PretrainConfig, images: Images) -> Tensor | None:
    """The memory that a run's evaluations hold from its beginning to its end."""
    if config.monitor.knn_every_epochs == 0:
        return None
    held, side = crops_held(images, config.data, config.monitor), config.views.global_size
    return torch.ones(held, config.data.channels, side, side, dtype=torch.uint8)


def _evaluate_a_batch(trainer: Trainer) -> None:
    """The network on as many images as an evaluation shows it at once."""
    config = trainer.config
    if config.monitor.knn_every_epochs == 0:
        return
    side, channels = config.views.global_size, config.data.channels
    batch = torch.zeros(BATCH, channels, side, side, dtype=torch.uint8, device=trainer.device)
    with torch.inference_mode(), trainer.precision.autocast():
        trainer.teacher.summary(normalise(batch, config.data.mean, config.data.std))


def _endless(loader: Loader) -> Iterator[Batch]:
    """Batches of one epoch after the other."""
    for epoch in itertools.count():
        yield from loader.epoch(epoch)


def _time_batches(batches: Iterator[Batch], workers: int) -> tuple[int, float]:
    """How many batches were timed, and the seconds of each once all workers are at work."""
    for _ in range(max(1, workers)):
        next(batches)
    began, made = time.perf_counter(), 0
    while made < max(3, 2 * workers) and time.perf_counter() - began < _SECONDS:
        next(batches)
        made += 1
    return made, (time.perf_counter() - began) / made


def _time_steps(batches: Iterator[Batch], trainer: Trainer) -> tuple[list[float], list[float]]:
    """The seconds of each step, and those without waiting for batches."""
    whole: list[float] = []
    computed: list[float] = []
    began = time.perf_counter()
    while len(whole) < _STEPS and (not whole or time.perf_counter() - began < _SECONDS):
        start = time.perf_counter()
        batch = next(batches)
        came = time.perf_counter()
        _one_step(batch, trainer, len(whole))
        whole.append(time.perf_counter() - start)
        computed.append(time.perf_counter() - came)
    # The first step makes room for gradients and moments, and chooses kernels.
    return whole[1:] or whole, computed[1:] or computed


def _step_with_the_largest_masks(batch: Batch, trainer: Trainer) -> None:
    """One more step, not timed: a run draws many ratios, and the largest needs the most memory."""
    distiller = trainer.distiller
    drawn, largest = distiller.masker, distiller.masker.ratio[1]
    distiller.masker = dataclasses.replace(drawn, ratio=(largest, largest))
    _one_step(batch, trainer, 0)
    distiller.masker = drawn


def _one_step(batch: Batch, trainer: Trainer, step: int) -> None:
    config = trainer.config
    views = batch.on(trainer.device).normalise(config.data.mean, config.data.std)
    report = trainer.learn(views, trainer.schedules.at(min(step, trainer.schedules.steps - 1)))
    report.losses[-1].total.item()  # an accelerator is done only when its result is read


def _device_bytes(device: torch.device) -> int | None:
    if device.type not in ("cuda", "xpu"):
        return None
    return int(torch.accelerator.max_memory_reserved(device))
