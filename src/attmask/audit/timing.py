"""Time and memory of a config on this machine: a few training steps in a separate process.

A separate process has its own peak of memory, and dies alone if memory runs out.
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
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from attmask.audit.audit import Timing
from attmask.audit.memory import peak_bytes, private_bytes
from attmask.config import PretrainConfig
from attmask.data.batch import Batch
from attmask.data.feeding import BatchLoader
from attmask.data.images import Images
from attmask.errors import UserError
from attmask.evaluation.features.forward import normalise
from attmask.evaluation.online import BATCH, crops_held
from attmask.heap import shared_bytes
from attmask.train import Trainer

_SECONDS = 20.0  # for the loader alone, and again for the steps; a step that began is finished
_STEPS = 6
_USER_ERROR = 3


def time_steps(config: PretrainConfig, images: Images) -> Timing:
    """Train for some steps in another process; raise a UserError if that fails."""
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
            f"the timed steps were killed by signal {-process.returncode}, perhaps because "
            f"memory ran out; use a smaller train.batch_size than {config.train.batch_size}"
        )
    raise RuntimeError(f"the timed steps failed: {said[-1]}")


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
    """Time the loader alone, then steps while the loader runs."""
    batches = _endless(trainer.loader)
    made, batch_seconds = _time_batches(batches, trainer.workers)
    steps, computed = _time_steps(batches, trainer)
    _step_with_the_largest_masks(next(batches), trainer)
    _evaluate_a_batch(trainer)
    trainer.save()  # a checkpoint is copied before it is written
    trainer.checkpoints.finish()
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
        process_bytes=_process_bytes(trainer),
        workers_bytes=sum(known) if len(known) == len(workers) else None,
        device_bytes=_device_bytes(trainer.device),
    )


def _process_bytes(trainer: Trainer) -> int | None:
    """The peak so far, or what a longer run holds before it returns freed memory."""
    peak = peak_bytes()
    return None if peak is None else max(peak, trainer.heap.allowed + shared_bytes())


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


def _endless(loader: BatchLoader[Batch]) -> Iterator[Batch]:
    """Batches of one epoch after the other."""
    for epoch in itertools.count():
        yield from loader.epoch(epoch)


def _time_batches(batches: Iterator[Batch], workers: int) -> tuple[int, float]:
    """The number of timed batches, and the seconds per batch once all workers are busy."""
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
    """Take one more step, untimed, with the largest mask ratio, which needs the most memory."""
    distiller = trainer.distiller
    drawn, largest = distiller.masker, distiller.masker.ratio[1]
    distiller.masker = dataclasses.replace(drawn, ratio=(largest, largest))
    _one_step(batch, trainer, 0)
    distiller.masker = drawn


def _one_step(batch: Batch, trainer: Trainer, step: int) -> None:
    config = trainer.config
    views = batch.on(trainer.device).normalise(config.data.mean, config.data.std)
    report, _ = trainer.learn(views, trainer.schedules.at(min(step, trainer.schedules.steps - 1)))
    report.losses[-1].total.item()  # an accelerator is done only when its result is read


def _device_bytes(device: torch.device) -> int | None:
    if device.type not in ("cuda", "xpu"):
        return None
    return int(torch.accelerator.max_memory_reserved(device))
