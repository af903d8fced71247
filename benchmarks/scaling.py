"""Two processes that train together, against two that train beside each other.

Each process has one thread and the same number of images a step: ViT-S/16, 2 × 224² + 6 × 96²,
K = 8192. Apart, each has a network of its own; together, they share one by DDP or FSDP2. All take
their steps in alternating rounds of one launch, so both find the same machine. What is slower
together is communication that the backward pass did not hide, and waiting for the other process;
the exchange of the gradients alone is timed as well.

    python benchmarks/scaling.py [--images 2] [--rounds 4] [--processes 2]
"""

import argparse
import os
import platform
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attmask import distributed
from attmask.data.views import Views
from attmask.engine import Sharding, attach_engine_
from attmask.hardware import Precision
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules
from attmask.step import train_step
from benchmarks.step import STEPS_BEFORE, Inputs

CPU = torch.device("cpu")


class Training:
    """One process's part of a training: of its own, or of all together."""

    def __init__(self, images: int, engine: Sharding | None) -> None:
        config = override(load_recipe("ibot-high"), ["masking.ratio=[0.3,0.3]"])
        self.distiller = build_distiller(config)
        if engine is not None:
            attach_engine_(self.distiller, engine, CPU)
        self.optimizer = build_optimizer(self.distiller.student, config.optim)
        self.precision = Precision.choose("fp32", CPU)
        self.schedules = Schedules(config.schedule, steps_per_epoch=100, batch_size=images)
        inputs = Inputs.draw(images)
        self.views = Views(inputs.whole, inputs.local, images * dist.get_rank())  # also apart

    def __call__(self, number: int) -> None:
        """One step."""
        now = self.schedules.at(STEPS_BEFORE + number)
        train_step(self.distiller, self.optimizer, self.views, now, self.precision, clip=3.0)

    @property
    def gradient_bytes(self) -> int:
        """What DDP sends of each process."""
        return sum(p.nbytes for p in self.distiller.student.parameters() if p.requires_grad)


class _Alone:
    """Takes the group away while a process trains by itself."""

    def __enter__(self) -> None:
        self.found, distributed.world_size = distributed.world_size, lambda: 1

    def __exit__(self, *_: object) -> None:
        distributed.world_size = self.found


def seconds_of(step: Callable[[int], object], number: int) -> float:
    """From the moment that all begin to the moment that the last is done."""
    dist.barrier()
    began = time.perf_counter()
    step(number)
    dist.barrier()
    return time.perf_counter() - began


def member(images: int, rounds: int) -> None:
    """What each process runs; the main one prints."""
    torch.set_num_threads(1)
    with distributed.processes(CPU):
        with _Alone():
            apart = Training(images, None)
        trainings = {
            "apart": apart,
            "DDP": Training(images, "none"),
            "FSDP2": Training(images, "fsdp"),
        }
        gradients = torch.zeros(apart.gradient_bytes // 4)
        best: dict[str, float] = {}
        for number in range(rounds + 1):
            for name, training in trainings.items():
                if name == "apart":
                    with _Alone():
                        took = seconds_of(training, number)
                else:
                    took = seconds_of(training, number)
                if number:  # the first one warms up
                    best[name] = min(took, best.get(name, took))
            took = seconds_of(lambda _: dist.all_reduce(gradients), number)
            best["exchange"] = min(took, best.get("exchange", took))
        if distributed.is_main():
            tell(best, images * distributed.world_size(), apart.gradient_bytes)


def tell(best: dict[str, float], images: int, gradient_bytes: int) -> None:
    """Images a second of each, and the share of communication."""
    count = distributed.world_size()
    print(f"{'':24}{'s a step':>10}{'images/s':>10}{'of apart':>10}{'communication':>15}")
    for name, label in (
        ("apart", f"{count} processes apart"),
        ("DDP", f"{count} together, DDP"),
        ("FSDP2", f"{count} together, FSDP2"),
    ):
        ratio, share = best["apart"] / best[name], max(0.0, 1 - best["apart"] / best[name])
        seconds = best[name]
        print(f"{label:24}{seconds:10.2f}{images / seconds:10.3f}{ratio:10.1%}{share:15.1%}")
    alone = best["exchange"]
    print(
        f"\nThe gradients alone, {gradient_bytes / 1e6:.0f} MB, are exchanged in {alone:.3f} s, "
        f"{alone / best['DDP']:.1%} of DDP's step, if nothing hides them."
    )


def main() -> None:
    """Start the processes and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=2, help="images of each process and step")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parsed = parser.parse_args()
    if "RANK" in os.environ:
        member(parsed.images, parsed.rounds)
        return
    print(
        f"{date.today()}, {platform.processor() or platform.machine()}, torch {torch.__version__}, "
        f"{parsed.processes} processes of one thread, {parsed.images} images each, fp32, best of "
        f"{parsed.rounds} rounds"
    )
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = str(opened.getsockname()[1])
    shared = {
        **os.environ,
        "WORLD_SIZE": str(parsed.processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
    }
    group = [
        subprocess.Popen([sys.executable, *sys.argv], env={**shared, "RANK": str(rank)})
        for rank in range(parsed.processes)
    ]
    sys.exit(max(process.wait() for process in group))


if __name__ == "__main__":
    main()
