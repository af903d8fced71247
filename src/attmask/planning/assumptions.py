"""What a plan assumes, in sentences."""

from collections.abc import Iterator

from attmask.config import PretrainConfig
from attmask.hardware import Format
from attmask.planning.devices import Device
from attmask.planning.rate import PICTURES, SIDE
from attmask.wording import counted

USABLE = 0.9
"""The share of a device's memory that tensors may take."""


def of_device(config: PretrainConfig, device: Device, precision: Format) -> Iterator[str]:
    """Its memory and speed, and the number format."""
    yield (
        f"{device.name}: {device.memory_gb:g} GB (10^9 bytes), {device.tflops(precision):g} "
        f"TFLOP/s in {precision} ({device.source})"
    )
    yield (
        f"tensors may take {100 * USABLE:g} % of the memory; the rest is for the driver, for "
        "buffers of libraries and for gaps"
    )
    if config.train.precision == "auto" and device.bf16 is None and device.fp16 is not None:
        yield (
            f"{device.name} has no bf16, so train.precision=auto trains in fp32; "
            f"train.precision=fp16 has {device.fp16:g} TFLOP/s"
        )


def of_step(config: PretrainConfig, processes: int, utilisation: float) -> Iterator[str]:
    """What is counted in a step, and how its time follows."""
    is_sharded = config.train.sharding == "fsdp"
    if processes > 1 and is_sharded:
        yield (
            f"each of the {processes} processes holds its part of weights and moments (FSDP2), "
            "and at the peak also the weights of the modules that are computed or fetched, and "
            "all gradients, which are shared in the last part of a step; what NCCL keeps for "
            "itself is not counted"
        )
    elif processes > 1:
        yield (
            f"each of the {processes} processes holds all weights, gradients and moments (DDP, "
            "whose buckets are the memory of the gradients)"
        )
    elif is_sharded:
        yield "train.sharding=fsdp: one process has nobody to share with"
    if config.masking.strategy != "none":
        yield (
            f"memory: {100 * config.masking.ratio[1]:g} % of the patches are hidden, in as many "
            "views as are masked once in a million steps; operations: the expected number"
        )
    if config.backbone.drop_path:
        yield "drop path: as drawn in one step"
    if config.train.compile:
        yield "train.compile is not counted: compiled blocks hold less"
    if config.views.colours_on == "device":
        yield "views.colours_on=device is not counted: colours are made before a step"
    sent = "gradients and weights" if processes > 1 and is_sharded else "gradients"
    yield (
        f"time: training reaches {100 * utilisation:g} % of the peak speed (--utilisation), which "
        f"is not measured and includes sending {sent}; with few images a device, starting "
        "kernels may take longer; evaluations and checkpoints come on top"
    )


def of_rate(config: PretrainConfig, *, is_measured: bool) -> str:
    """Where the rate of a core comes from."""
    views = counted(config.views.count, "view")
    if not is_measured:
        return f"cores: the rate of a core as stated, {views} an image"
    return (
        f"cores: measured on one core of this machine, {views} of each of {PICTURES} generated "
        f"JPEG pictures of {SIDE} x {SIDE} pixels in memory, which other programs slow "
        "(--core-rate states another)"
    )
