"""What a checkpoint costs a training: seconds that it waits, and memory that it takes.

One process: ViT-S/16 with its head, its teacher and its moments. Written at once, as before, the
training waits for the whole write; in the background, for the copy alone, while the steps after it
share the machine with the thread that writes. Two processes with FSDP2: the peak of memory above
that of the steps, where the main process gathers and writes the moments of all, and where each
process writes its own.

    python benchmarks/saving.py [--steps 4] [--backbone vit_small_patch16_224]
"""

import argparse
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attmask import atomic, checkpoint, distributed
from attmask.audit.memory import peak_bytes
from attmask.checkpoint import OPTIMIZER, WEIGHTS, Checkpoint
from attmask.data.views import Views
from attmask.distill import Distiller
from attmask.engine import attach_engine_
from attmask.hardware import Precision
from attmask.heap import resident_bytes, return_freed_memory
from attmask.networks import build_distiller
from attmask.optim import build_optimizer, optimizer_tensors
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.saving import BackgroundWriter
from attmask.schedules import Schedules
from attmask.state import Snapshot, TrainingState, _gathered
from attmask.step import train_step

CPU = torch.device("cpu")


class Training:
    """A training whose steps can be taken and whose state can be written."""

    def __init__(self, backbone: str) -> None:
        config = override(load_recipe("ibot-high"), [f"backbone.name={backbone}"])
        self.distiller: Distiller = build_distiller(config)
        attach_engine_(self.distiller, "fsdp", CPU)
        self.optimizer = build_optimizer(self.distiller.student, config.optim)
        self.state = TrainingState(self.distiller, self.distiller.student, self.optimizer)
        self.precision = Precision.choose("fp32", CPU)
        self.schedules = Schedules(config.schedule, steps_per_epoch=100, batch_size=1)
        self.number = 0

    def step(self) -> None:
        """One step on noise."""
        views = Views(torch.randn(2, 1, 3, 224, 224), torch.randn(2, 1, 3, 96, 96))
        now = self.schedules.at(100 + self.number)
        train_step(self.distiller, self.optimizer, views, now, self.precision, clip=3.0)
        self.number += 1

    def write(self, folder: Path, made: Snapshot, writer: str | None = None) -> None:
        """What a run writes."""
        whole = Checkpoint(self.number, made.tensors, {})
        checkpoint.save(folder, whole, keep=1, shards=made.shards, writer=writer)


def seconds(folder: Path, backbone: str, steps: int) -> None:
    """One process: what the training waits for."""
    torch.set_num_threads(1)
    training, background = Training(backbone), BackgroundWriter()
    training.step()
    waited: dict[str, list[float]] = {"at once": [], "in the background": []}
    taken: dict[str, list[float]] = {"no checkpoint": [], "while one is written": []}

    def timed(kind: list[float], began: float) -> None:
        kind.append(time.perf_counter() - began)

    for _ in range(steps):
        began = time.perf_counter()
        training.step()
        timed(taken["no checkpoint"], began)
        began = time.perf_counter()
        training.write(folder, training.state.snapshot())
        timed(waited["at once"], began)
        training.step()
        began = time.perf_counter()
        made = training.state.snapshot()
        background.start(lambda made=made: training.write(folder, made))  # type: ignore[misc]
        timed(waited["in the background"], began)
        began = time.perf_counter()
        training.step()
        timed(taken["while one is written"], began)
        background.wait()
    size = training.state.checkpoint_bytes / 1e6
    print(f"a checkpoint of {size:.0f} MB, best of {steps}:")
    for name, times in waited.items():
        print(f"  written {name:18} the training waits {min(times):.2f} s")
    for name, times in taken.items():
        print(f"  a step, {name:21} {min(times):.2f} s")


def memory(folder: Path, backbone: str) -> None:
    """Two processes with FSDP2: memory above that of the steps, in one of the two ways."""
    torch.set_num_threads(1)
    with distributed.processes(CPU):
        training = Training(backbone)
        training.step()
        how = os.environ["BENCHMARK_WAY"]
        return_freed_memory()
        before = resident_bytes() or 0
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        if how == "own":
            made = training.state.snapshot()
        else:
            moments = optimizer_tensors(training.optimizer, training.distiller.student)
            weights = _gathered(training.distiller.state_dict())
            whole = {WEIGHTS: weights, OPTIMIZER: _gathered(moments)}
            made = Snapshot(whole if distributed.is_main() else {}, None)
        writer = distributed.from_main(atomic.new_writer())
        if how == "own" or distributed.is_main():
            training.write(folder, made, writer if how == "own" else None)
        more = ((peak_bytes() or 0) - before) / 1e6
        peaks = distributed.gather(more)
        if distributed.is_main():
            named = {"own": "each writes its own", "main": "the main one writes all"}[how]
            print(f"  {named:26} " + ", ".join(f"{peak:6.0f} MB" for peak in peaks), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--backbone", default="vit_small_patch16_224")
    parsed = parser.parse_args()
    if "RANK" in os.environ:
        memory(Path(os.environ["BENCHMARK_FOLDER"]), parsed.backbone)
        return
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, {parsed.backbone}")
    with tempfile.TemporaryDirectory() as folder:
        seconds(Path(folder) / "alone", parsed.backbone, parsed.steps)
        print("memory above that of the steps, of each of two processes (FSDP2):", flush=True)
        for way in ("main", "own"):
            run_two(way, Path(folder) / way)


def run_two(way: str, folder: Path) -> None:
    """Start two processes that save in one of the two ways."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port = str(opened.getsockname()[1])
    shared = {
        **os.environ,
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "OMP_NUM_THREADS": "1",
        "BENCHMARK_WAY": way,
        "BENCHMARK_FOLDER": str(folder),
    }
    group = [
        subprocess.Popen([sys.executable, *sys.argv], env={**shared, "RANK": str(rank)})
        for rank in range(2)
    ]
    if any(process.wait() for process in group):
        sys.exit(1)


if __name__ == "__main__":
    main()
