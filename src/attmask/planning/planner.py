"""A config, a device and a number of processes become a plan."""

import math

from attmask.config import PretrainConfig
from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.hardware import choose_format
from attmask.planning.answers import find_answers
from attmask.planning.assumptions import USABLE, of_device, of_rate, of_step
from attmask.planning.devices import Device
from attmask.planning.group import refuse_inside_a_group
from attmask.planning.memory import Memory, peak_memory
from attmask.planning.operations import operations
from attmask.planning.rate import images_per_core_second
from attmask.planning.record import RunPlan
from attmask.planning.rehearsal import build_without_values
from attmask.state import checkpoint_bytes

UTILISATION = 0.2
_IMAGENET = 1_281_167
_IMAGENET_CLASSES = 1_000


def plan_run(
    config: PretrainConfig,
    device: Device,
    *,
    recipe: str,
    processes: int = 1,
    images: int | None = None,
    utilisation: float = UTILISATION,
    core_images_per_second: float | None = None,
) -> RunPlan:
    """Count memory and operations of a step, and derive time, data rate and cores from them."""
    epoch, epoch_said = images_of_an_epoch(config.data, images)
    _check(config, processes, utilisation, epoch)
    precision = choose_format(config.train.precision, bf16=device.bf16 is not None)
    speed = device.tflops(precision) * 1e12 * utilisation
    fused = None if device.is_cpu else True  # as a CPU does it, or as every GPU

    def measure(changed: PretrainConfig, on: int) -> Memory:
        return peak_memory(changed, processes=on, precision=precision, fused=fused)

    memory, usable = measure(config, processes), int(USABLE * device.memory_gb * 1e9)
    fits = memory.total <= usable
    counted = operations(config, processes=processes, precision=precision, fused=fused)
    batch, epochs, seconds = config.train.batch_size, config.schedule.epochs, counted / speed
    distiller = build_without_values(config)
    core_rate = core_images_per_second or images_per_core_second(config.views)
    return RunPlan(
        recipe=recipe,
        processes=processes,
        device=device,
        precision=precision,
        images_per_process=batch // processes,
        accumulate=config.train.accumulate,
        memory=memory,
        usable_bytes=usable,
        answers=() if fits else find_answers(config, processes, memory, usable, measure),
        step_operations=counted * processes,
        utilisation=utilisation,
        step_seconds=seconds,
        images=epoch,
        epochs=epochs,
        steps=epoch // batch * epochs,
        core_images_per_second=core_rate,
        cores=math.ceil(batch / seconds / core_rate),
        checkpoint_bytes=checkpoint_bytes(distiller, distiller.student),
        assumptions=(
            *of_device(config, device, precision),
            *of_step(config, processes, utilisation),
            f"images: {epoch_said}",
            of_rate(config, is_measured=core_images_per_second is None),
        ),
    )


def _check(config: PretrainConfig, processes: int, utilisation: float, images: int) -> None:
    batch, parts = config.train.batch_size, config.train.accumulate
    refuse_inside_a_group()
    if not 0 < utilisation <= 1:
        raise UserError(f"--utilisation {utilisation:g}: wanted a share above 0, up to 1")
    if images < batch:
        raise UserError(f"{images:,} images are fewer than one batch of {batch}; use more images")
    if batch % processes:
        near = batch // processes * processes
        choice = f"{near} or {near + processes}" if near else f"{processes}"
        raise UserError(
            f"train.batch_size={batch} cannot be shared by {processes} processes; use {choice}"
        )
    if batch // processes % parts:
        raise UserError(
            f"{batch // processes} images a process do not split into train.accumulate={parts} "
            "micro-batches; use a number that divides them"
        )


def images_of_an_epoch(data: DataConfig, given: int | None) -> tuple[int, str]:
    """How many images an epoch has, and what was assumed."""
    known, said = given, f"{given or 0:,} as stated"
    if known is None:
        known, said = _IMAGENET, f"ImageNet-1k has {_IMAGENET:,} (--images states another number)"
    if data.percent is not None:
        return int(known * data.percent / 100), f"{said}, of which {data.percent:g} % are used"
    if data.per_class is None:
        return known, said
    if given is not None:
        return known, f"{said}, those that data.per_class={data.per_class} leaves"
    part = data.per_class * _IMAGENET_CLASSES
    return part, f"{said} in {_IMAGENET_CLASSES:,} classes, {data.per_class} of each are used"
