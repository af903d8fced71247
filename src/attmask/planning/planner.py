"""A config, a device and a number of processes become a plan."""

import math

import torch

from attmask.config import PretrainConfig
from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.hardware import Format, choose_format
from attmask.networks import build_distiller
from attmask.optim import moment_bytes
from attmask.planning.answers import find_answers
from attmask.planning.devices import Device
from attmask.planning.memory import Memory, peak_memory
from attmask.planning.operations import operations
from attmask.planning.rate import PICTURES, SIDE, images_per_core_second
from attmask.planning.record import RunPlan
from attmask.wording import counted

UTILISATION = 0.2
_USABLE = 0.9
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
    _check(config, processes, utilisation)
    precision = choose_format(config.train.precision, bf16=device.bf16 is not None)
    speed = device.tflops(precision) * 1e12 * utilisation
    fused = None if device.is_cpu else True

    def measure(changed: PretrainConfig, on: int) -> Memory:
        return peak_memory(changed, processes=on, precision=precision, fused=fused)

    memory, usable = measure(config, processes), int(_USABLE * device.memory_gb * 1e9)
    answers = ()
    if memory.total > usable:
        answers = find_answers(config, processes, memory, usable, measure)
    counted_operations = operations(
        config, processes=processes, precision=precision, fused=fused
    )
    seconds = counted_operations / speed
    epoch, from_where = images_of_an_epoch(config.data, images)
    batch = config.train.batch_size
    if epoch < batch:
        raise UserError(f"{epoch:,} images are fewer than one batch of {batch}; use more images")
    rate, is_measured = core_images_per_second, core_images_per_second is None
    if rate is None:
        rate = images_per_core_second(config.views)
    return RunPlan(
        recipe=recipe,
        processes=processes,
        device=device,
        precision=precision,
        images_per_process=batch // processes,
        accumulate=config.train.accumulate,
        memory=memory,
        usable_bytes=usable,
        answers=answers,
        step_operations=counted_operations * processes,
        utilisation=utilisation,
        step_seconds=seconds,
        images=epoch,
        epochs=config.schedule.epochs,
        steps=epoch // batch * config.schedule.epochs,
        core_images_per_second=rate,
        cores=math.ceil(batch / seconds / rate),
        checkpoint_bytes=checkpoint_bytes(config),
        assumptions=tuple(
            [
                *_of_the_device(config, device, precision, processes),
                *_of_the_step(config),
                f"time: {100 * utilisation:g} % of the peak speed is used (--utilisation), which "
                "nobody has measured; evaluations and checkpoints come on top",
                f"images: {from_where}",
                _of_the_rate(config, is_measured=is_measured),
            ]
        ),
    )


def _check(config: PretrainConfig, processes: int, utilisation: float) -> None:
    batch, parts = config.train.batch_size, config.train.accumulate
    if not 0 < utilisation <= 1:
        raise UserError(f"--utilisation {utilisation:g}: wanted a share above 0, up to 1")
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
    known = _IMAGENET if given is None else given
    origin = (
        f"ImageNet-1k has {_IMAGENET:,} (--images states another number)"
        if given is None
        else f"{given:,} as stated"
    )
    if data.percent is not None:
        return int(known * data.percent / 100), f"{origin}, of which {data.percent:g} % are used"
    if data.per_class is None:
        return known, origin
    if given is None:
        part = data.per_class * _IMAGENET_CLASSES
        return part, f"{origin} in {_IMAGENET_CLASSES:,} classes, {data.per_class} of each are used"
    return known, f"{origin}, those that data.per_class={data.per_class} leaves"


def checkpoint_bytes(config: PretrainConfig) -> int:
    """The weights of both networks, the centres and the moments of the optimiser."""
    own = config.backbone.model_copy(update={"pretrained": False})
    with torch.device("meta"):
        distiller = build_distiller(config.model_copy(update={"backbone": own}))
    weights = sum(tensor.nbytes for tensor in distiller.state_dict().values())
    return int(weights) + moment_bytes(distiller.student)


def _of_the_device(
    config: PretrainConfig, device: Device, precision: Format, processes: int
) -> list[str]:
    said = [
        f"{device.name}: {device.memory_gb:g} GB (10^9 bytes), {device.tflops(precision):g} "
        f"TFLOP/s in {precision} ({device.source})",
        f"tensors may take {100 * _USABLE:g} % of the memory; the rest is for the driver, for "
        "buffers of libraries and for gaps",
    ]
    if config.train.precision == "auto" and device.bf16 is None and device.fp16 is not None:
        said.append(
            f"{device.name} has no bf16, so train.precision=auto trains in fp32; "
            f"train.precision=fp16 has {device.fp16:g} TFLOP/s"
        )
    if processes > 1:
        said.append(
            f"each of {processes} processes holds weights, gradients and moments whole (DDP); "
            "gradients lie in its buckets; the time to send them is part of the utilisation"
        )
    return said


def _of_the_step(config: PretrainConfig) -> list[str]:
    masking = config.masking
    said = []
    if masking.strategy != "none":
        said.append(
            f"memory: {100 * masking.ratio[1]:g} % of the patches are hidden, in as many views as "
            "are masked once in a million steps; operations: the expected number"
        )
    if config.backbone.drop_path:
        said.append("drop path: as drawn in one step")
    if config.train.compile:
        said.append("train.compile is not counted: compiled blocks hold less")
    if config.views.colours_on == "device":
        said.append("colours on the device are not counted: they are made before a step")
    return said


def _of_the_rate(config: PretrainConfig, *, is_measured: bool) -> str:
    views = counted(config.views.count, "view")
    if not is_measured:
        return f"cores: images a second of a core as stated, {views} each"
    return (
        f"cores: one core of this machine, {views} of each of {PICTURES} generated JPEG pictures "
        f"of {SIDE} x {SIDE} pixels in memory (--core-rate states another)"
    )
