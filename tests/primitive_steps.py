"""Train for some steps with masks of many sizes and print the peak of memory on the way.

    python tests/primitive_steps.py FORMAT STEP [STEP ...]

One line for each step named: the peak so far, in bytes. `bf16` is what a run does on a CPU that
has bf16. `onednn` computes the products of fp32 by oneDNN as well, as those of bf16 are, so that
its memory can be watched on a CPU without bf16.
"""

import sys
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from attmask.audit.memory import peak_bytes
from attmask.data.views import Views
from attmask.hardware import Precision
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules
from attmask.step import train_step

SETTINGS = ("views.global_size=64", "backbone.drop_path=0", "schedule.epochs=4")


class ByOneDNN(TorchDispatchMode):
    """Products of two matrices by oneDNN instead of MKL, also in fp32."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        products = torch.ops.aten.mm.default, torch.ops.aten.addmm.default
        if func not in products:
            return func(*args, **(kwargs or {}))
        bias = args[0] if func is products[1] else None
        left, right = args[-2:]
        weight = right.t().contiguous()
        product = torch.ops.mkldnn._linear_pointwise
        return product(left.contiguous(), weight, bias, "none", [], "")


def main(kind: str, *marks: str) -> None:
    """Train to the last of the marked steps."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = override(load_recipe("tiny"), SETTINGS)
    distiller = build_distiller(config)
    optimizer = build_optimizer(distiller.student, config.optim)
    schedules = Schedules(config.schedule, steps_per_epoch=int(marks[-1]), batch_size=16)
    precision = Precision.choose("bf16" if kind == "bf16" else "fp32", torch.device("cpu"))
    views = Views(torch.randn(2, 16, 3, 64, 64), torch.randn(2, 16, 3, 16, 16))
    products: Any = ByOneDNN if kind == "onednn" else nullcontext
    for step in range(int(marks[-1])):
        with products():
            train_step(distiller, optimizer, views, schedules.at(step), precision)
        if str(step + 1) in marks:
            sys.stdout.write(f"{peak_bytes()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
