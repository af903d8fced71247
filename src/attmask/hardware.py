"""What the machine has: device, number format, cores."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from attmask.errors import UserError
from attmask.launch import has_own_part, launched_here

Format = Literal["bf16", "fp16", "fp32"]
Part = TypeVar("Part")


def choose_device(asked: str) -> torch.device:
    """The requested device; `auto` is an accelerator if there is one."""
    if asked == "auto":
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        return found or torch.device("cpu")
    try:
        number = torch.ones(1, device=asked)
    except (RuntimeError, AssertionError, ImportError) as fault:  # PyTorch's ways to say no
        raise UserError(f"device {asked} is not available; use auto or cpu") from fault
    try:
        computes = float(number + 1) == 2
    except RuntimeError:
        computes = False
    if not computes:
        raise UserError(f"device {asked} cannot store values and cannot train; use auto or cpu")
    return torch.device(asked)


def has_bf16(device: torch.device) -> bool:
    """Whether bf16 is computed by the hardware itself, not emulated."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    known = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return any(bool(known.get(name)) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers() -> int:
    """The default number of worker processes: one core is left to training.

    Processes that were launched on one machine share its cores, unless each was given its own.
    """
    share = 1 if has_own_part() and cores() < (os.cpu_count() or 1) else launched_here()
    return max(1, min(16, cores() // share - 1))


def choose_format(asked: Literal["auto", "bf16", "fp16", "fp32"], *, bf16: bool) -> Format:
    """The requested number format; `auto` is bf16 where the hardware has it, else fp32."""
    automatic: Format = "bf16" if bf16 else "fp32"
    return automatic if asked == "auto" else asked


@dataclass(frozen=True)
class Precision:
    """The number format of forward passes, with the loss scaler that fp16 needs."""

    format: Format
    device: torch.device
    scaler: torch.amp.GradScaler

    @classmethod
    def choose(
        cls, asked: Literal["auto", "bf16", "fp16", "fp32"], device: torch.device
    ) -> "Precision":
        """The format of `choose_format` on a device that is there."""
        chosen = choose_format(asked, bf16=has_bf16(device))
        scaler = torch.amp.GradScaler(device.type, enabled=chosen == "fp16")
        return cls(chosen, device, scaler)

    def autocast(self) -> AbstractContextManager[None]:
        """Autocast to this format."""
        if self.format == "fp32":
            return nullcontext()
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[self.format]
        return torch.autocast(self.device.type, dtype)

    def cast(self, parts: Iterator[Part]) -> Iterator[Part]:
        """Iterate over a generator under autocast; the consumer runs outside of it."""
        while True:
            try:
                with self.autocast():
                    part = next(parts)
            except StopIteration:
                return
            yield part

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of a loss, scaled in fp16."""
        self.scaler.scale(loss).backward()

    def unscale_(self, optimizer: Optimizer) -> None:
        """Unscale the gradients before they are clipped."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: Optimizer, finite: Tensor) -> None:
        """Take one optimizer step, unless something was not finite or fp16 gradients overflowed."""
        if self.scaler.is_enabled():
            self.scaler.step(optimizer)
            self.scaler.update()
            return
        # Read by PyTorch's fused optimizers, as its scaler sets it: the device skips the step.
        vars(optimizer)["found_inf"] = (~finite).float()
        optimizer.step()
        del vars(optimizer)["found_inf"]
