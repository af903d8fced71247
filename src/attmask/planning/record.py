"""The record of a plan.

As JSON its keys are the fields of `RunPlan` and of what they hold:

    recipe, processes      what is planned
    device                 name, memory_gb, bf16, fp16, fp32 (TFLOP/s, null if not computed in),
                           source
    precision              bf16, fp16 or fp32
    images_per_process     images a step on one device, in `accumulate` micro-batches
    memory                 bytes on one device at the peak of a step: weights, gradients, moments,
                           activations
    peak_bytes             their sum
    usable_bytes           the share of the device's memory that tensors may take
    fits                   whether the one is at most the other
    answers                [{setting, peak_bytes, fits}]: settings that need less memory, where
                           it does not fit
    step_operations        floating-point operations of a step, all processes together
    utilisation            the assumed share of the device's peak speed
    step_seconds, images_per_second, hours
    images, epochs, steps  images of an epoch, epochs, steps of the run
    core_images_per_second views that one core makes
    cores                  cores that keep up, for all processes together
    checkpoint_bytes       the size of a checkpoint
    assumptions            sentences
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from attmask.hardware import Format
from attmask.planning.devices import Device
from attmask.planning.memory import Memory


@dataclass(frozen=True)
class Answer:
    """A setting that needs less memory, and how much it needs."""

    setting: str
    peak_bytes: int
    fits: bool


@dataclass(frozen=True)
class RunPlan:
    """What a run needs, computed before anything runs."""

    recipe: str
    processes: int
    device: Device
    precision: Format
    images_per_process: int
    accumulate: int
    memory: Memory
    usable_bytes: int
    answers: tuple[Answer, ...]
    step_operations: int
    utilisation: float
    step_seconds: float
    images: int
    epochs: int
    steps: int
    core_images_per_second: float
    cores: int
    checkpoint_bytes: int
    assumptions: tuple[str, ...]

    @property
    def peak_bytes(self) -> int:
        """The memory of one device."""
        return self.memory.total

    @property
    def fits(self) -> bool:
        """Whether the device has the memory."""
        return self.peak_bytes <= self.usable_bytes

    @property
    def batch_size(self) -> int:
        """Images a step, over all processes."""
        return self.images_per_process * self.processes

    @property
    def images_per_second(self) -> float:
        """What the workers of all processes together must reach."""
        return self.batch_size / self.step_seconds

    @property
    def hours(self) -> float:
        """The length of the run, without evaluations and checkpoints."""
        return self.steps * self.step_seconds / 3600

    def to_dict(self) -> dict[str, Any]:
        """Plain values under the keys that the module documents, ready for JSON."""
        computed = ("peak_bytes", "fits", "images_per_second", "hours")
        return {**dataclasses.asdict(self), **{name: getattr(self, name) for name in computed}}
