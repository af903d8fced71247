"""One training step, whole: against a textbook step and lightly's modules, in the same run.

ViT-S/16, 2 × 224² + 6 × 96², K = 8192, forward, backward, clipping, optimiser and moving average,
on the same views; CPU time of one thread, best of alternating rounds. Then what each phase takes,
how far the step is from the time of its matrix multiplies alone, what High costs against Random
and peak memory of a process of its own; or how the cost grows.

    python benchmarks/step.py [--batch 8] [--rounds 4] [--formats bf16 fp32] [--pairs 20]
    python benchmarks/step.py --scaling [--plot FILE.svg]
"""

import argparse
import math
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from attmask.data.views import Views
from attmask.hardware import Format, Precision
from attmask.networks import build_distiller
from attmask.optim import build_optimizer, clip_each_parameter_, gradient_norms
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules
from attmask.step import train_step
from benchmarks.multiplies import seconds_of_products
from benchmarks.peers.textbook import TextbookStep

STEPS_BEFORE = 100  # past the epoch in which the last layer is frozen


@dataclass(frozen=True)
class Inputs:
    """The same views for all."""

    whole: Tensor
    local: Tensor
    mask: Tensor

    @classmethod
    def draw(cls, batch: int, crops: int = 6) -> "Inputs":
        """Random pixels; half of the views hide 30 % of their patches."""
        torch.manual_seed(0)
        mask = torch.zeros(2 * batch, 196, dtype=torch.bool)
        for view in range(0, 2 * batch, 2):
            mask[view, torch.randperm(196)[:58]] = True
        whole, local = torch.randn(2, batch, 3, 224, 224), torch.randn(crops, batch, 3, 96, 96)
        return cls(whole, local, mask)


class Ours:
    """attmask's own step; masks hide as much as the peers' are given."""

    def __init__(self, inputs: Inputs, *overrides: str) -> None:
        batch = inputs.whole.shape[1]
        settings = ["masking.ratio=[0.3,0.3]", *overrides]
        self.config = override(load_recipe("ibot-high"), settings)
        self.inputs = inputs
        self.distiller = build_distiller(self.config)
        self.optimizer = build_optimizer(self.distiller.student, self.config.optim)
        self.schedules = Schedules(self.config.schedule, steps_per_epoch=100, batch_size=batch)

    def __call__(self, precision: Precision, number: int) -> None:
        """One step."""
        views = Views(self.inputs.whole, self.inputs.local)
        now = self.schedules.at(STEPS_BEFORE + number)
        train_step(self.distiller, self.optimizer, views, now, precision, clip=3.0)

    def phases(self, precision: Precision, number: int) -> dict[str, float]:
        """CPU seconds of each part of one step, in the order of `train_step`."""
        d, now = self.distiller, self.schedules.at(STEPS_BEFORE + number)
        seconds: dict[str, float] = {}
        began = time.process_time()

        def lap(name: str) -> None:
            nonlocal began
            seconds[name] = time.process_time() - began
            began = time.process_time()

        views = Views(self.inputs.whole, self.inputs.local)
        with precision.autocast():
            targets = d.targets(views, now)
        lap("teacher, mask and targets")
        for loss, crops in zip(
            precision.cast(d.loss_parts(views, targets, now)), ("local", "global"), strict=True
        ):
            lap(f"student and loss, {crops}")
            loss.total.backward()
            lap(f"backward, {crops}")
        student = list(d.student.parameters())
        clip_each_parameter_(student, 3.0, gradient_norms(student))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        lap("clipping and optimiser")
        d.update_teacher_(now.momentum)
        d.update_centres_(targets.mean_logits)
        lap("moving averages")
        return seconds


class PeerStep(Protocol):
    """Another way to compute a step, in two halves."""

    def loss(self, whole: Tensor, local: Tensor, mask: Tensor) -> Tensor: ...

    def update(self) -> None: ...


class Peer:
    """Another step on the same views."""

    def __init__(self, inputs: Inputs, step: PeerStep) -> None:
        self.inputs, self.step = inputs, step

    def __call__(self, precision: Precision, number: int) -> None:
        """One step."""
        whole, local = self.inputs.whole.flatten(0, 1), self.inputs.local.flatten(0, 1)
        with precision.autocast():
            loss = self.step.loss(whole, local, self.inputs.mask)
        loss.backward()
        self.step.update()


Step = Callable[[Precision, int], None]


def contestants(inputs: Inputs, only: str | None = None) -> dict[str, Step]:
    """Who runs; lightly where it is installed."""
    prototypes = 8192
    found: dict[str, Step] = {}
    if only in (None, "attmask"):
        found["attmask"] = Ours(inputs)
    if only in (None, "textbook"):
        found["textbook"] = Peer(inputs, TextbookStep(prototypes))
    if only in (None, "lightly"):
        with suppress(ImportError):
            from benchmarks.peers.lightly_step import LightlyStep

            found["lightly"] = Peer(inputs, LightlyStep(prototypes))
    return found


def best_seconds(steps: dict[str, Step], precision: Precision, rounds: int) -> dict[str, float]:
    """Best CPU time of each, in alternating rounds after one that warms up."""
    best: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, step in steps.items():
            began = time.process_time()
            step(precision, number)
            took = time.process_time() - began
            if number:
                best[name] = min(took, best.get(name, took))
    return best


def peak_megabytes(name: str, number_format: Format, batch: int) -> float:
    """Peak memory of two steps in a process of its own, beyond that of its imports."""
    words = [sys.executable, __file__, "--memory-of", name, "--formats", number_format]
    made = subprocess.run(
        [*words, "--batch", str(batch)], capture_output=True, text=True, check=True, env=os.environ
    )
    return float(made.stdout.split()[-1])


def _status(key: str) -> float:
    text = Path("/proc/self/status").read_text()
    line = next(line for line in text.splitlines() if line.startswith(key))
    return int(line.split()[1]) / 1024


def report_memory(name: str, precision: Precision, batch: int) -> None:
    """What `peak_megabytes` asks for."""
    before = _status("VmRSS")
    inputs = Inputs.draw(batch)
    step = contestants(inputs, only=name)[name]
    for number in range(2):
        step(precision, number)
    print(_status("VmHWM") - before)


def high_against_random(precision: Precision, batch: int, pairs: int) -> None:
    """The same number of hidden patches, chosen by attention or by chance: one step of each in
    turn, and the median of the ratios with its interval of 95 % (by order statistics)."""
    inputs, same = Inputs.draw(batch), ("masking.probability=1", "backbone.drop_path=0")
    steps = {name: Ours(inputs, f"masking.strategy={name}", *same) for name in ("high", "random")}
    ratios = []
    for number in range(pairs + 1):
        taken = {}
        for name in ("high", "random") if number % 2 else ("random", "high"):
            began = time.process_time()
            steps[name](precision, number)
            taken[name] = time.process_time() - began
        ratios.append(100 * (taken["high"] / taken["random"] - 1))
    ratios = sorted(ratios[1:])  # the first pair warms up
    reach = round(0.98 * math.sqrt(pairs))
    low, high = (ratios[min(pairs - 1, max(0, pairs // 2 + side))] for side in (-reach, reach))
    print(
        f"  High against Random, batch {batch}, {pairs} pairs of steps: median "
        f"{ratios[pairs // 2]:+.2f} % (95 %: {low:+.2f} to {high:+.2f})",
        flush=True,
    )


def attention_share(ours: Ours, precision: Precision) -> float:
    """The share of a step that reading the teacher's `[CLS]` attention takes, which a strategy
    that does not look could do without."""
    backbone, crops = ours.distiller.teacher.backbone, ours.inputs.whole.flatten(0, 1)
    with precision.autocast(), torch.no_grad():
        trunk = backbone._trunk(crops, None)

        def read(precision: Precision, number: int) -> None:
            backbone._attention(trunk)

        reading = best_seconds({"": read}, precision, 5)[""]
    return reading / best_seconds({"": ours}, precision, 2)[""]


GROWTH = {
    "batch": [(b, 6, 8192) for b in (2, 4, 8, 12, 16)],
    "local crops": [(4, c, 8192) for c in (0, 2, 4, 6, 8, 10)],
    "prototypes": [(4, 6, k) for k in (1024, 4096, 8192, 16384, 32768, 65536)],
}


def scaling(precision: Precision, rounds: int, plot: Path | None) -> None:
    """Seconds a step by batch, local crops and prototypes, and how far from a straight line."""
    print("how the cost grows, CPU seconds a step:")
    grown: dict[str, tuple[list[int], list[float]]] = {}
    for place, (title, cases) in enumerate(GROWTH.items()):
        values, seconds = [case[place] for case in cases], []
        for batch, crops, prototypes in cases:
            inputs = Inputs.draw(batch, crops)
            step = Ours(inputs, f"head.prototypes={prototypes}", "backbone.drop_path=0")
            seconds.append(best_seconds({"step": step}, precision, rounds)["step"])
        grown[title] = values, seconds
        slope, start = _line(values, seconds)
        off = max(abs(s / (start + slope * v) - 1) for v, s in zip(values, seconds, strict=True))
        told = ", ".join(f"{v}: {s:.2f}" for v, s in zip(values, seconds, strict=True))
        print(f"  {title:<12} {told}")
        print(f"  {'':<12} {start:.2f} s + {slope:.3g} s each, at most {off:.1%} off", flush=True)
    growth_with_prototypes(precision, rounds)
    if plot is not None:
        draw(grown, plot)


def _line(values: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """Slope and start of the straight line that is least off, relative to each point."""
    slope, start = np.polyfit(values, seconds, 1, w=1 / np.array(seconds))
    return float(slope), float(start)


def growth_with_prototypes(precision: Precision, rounds: int) -> None:
    """What 57,344 prototypes more cost, by the tokens that go through the last layer."""
    inputs, few, many = Inputs.draw(4), 8192, 65536
    builders: dict[str, Callable[[int], Step]] = {
        "attmask": lambda k: Ours(inputs, f"head.prototypes={k}", "backbone.drop_path=0"),
        "without masked patches": lambda k: Ours(
            inputs,
            f"head.prototypes={k}",
            "backbone.drop_path=0",
            "masking.probability=0",
        ),
        "textbook": lambda k: Peer(inputs, TextbookStep(k)),
    }
    steps = {f"{name} {k}": build(k) for name, build in builders.items() for k in (few, many)}
    best = best_seconds(steps, precision, rounds)
    for name in builders:
        first, second = best[f"{name} {few}"], best[f"{name} {many}"]
        print(f"  {name}: {first:.2f} s with {few} prototypes, {second - first:+.2f} s with {many}")


def draw(grown: dict[str, tuple[list[int], list[float]]], file: Path) -> None:
    """One panel for each kind of growth, with the straight line through its points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.8), layout="constrained")
    panels = figure.subplots(1, len(grown))
    for axis, (title, (values, seconds)) in zip(panels, grown.items(), strict=True):
        slope, start = _line(values, seconds)
        ends = np.array([0, max(values)])
        axis.plot(ends, start + slope * ends, color="#b0b0b8", linewidth=1)
        axis.plot(values, seconds, "o", color="#9f116f", markersize=5)
        axis.set(xlabel=title, xlim=(0, 1.06 * max(values)), ylim=(0, 1.1 * max(seconds)))
        axis.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("CPU seconds a step")
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--formats", nargs="+", default=["bf16", "fp32"])
    parser.add_argument("--pairs", type=int, default=20, help="steps of High and of Random")
    parser.add_argument("--scaling", action="store_true", help="how the cost grows, alone")
    parser.add_argument("--plot", type=Path, help="draw how the cost grows to this file")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    if asked.memory_of:
        report_memory(asked.memory_of, Precision.choose(asked.formats[0], cpu), asked.batch)
        return
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, batch {asked.batch}")
    if asked.scaling:
        scaling(Precision.choose(asked.formats[0], cpu), asked.rounds, asked.plot)
        return
    inputs = Inputs.draw(asked.batch)
    steps = contestants(inputs)
    ours = steps["attmask"]
    assert isinstance(ours, Ours)
    seconds: dict[tuple[str, str], float] = {}
    for number_format in asked.formats:
        precision = Precision.choose(number_format, cpu)
        best = best_seconds(steps, precision, asked.rounds)
        peak = {name: peak_megabytes(name, number_format, asked.batch) for name in steps}
        print(f"{number_format}:")
        for name, took in best.items():
            seconds[number_format, name] = took
            print(
                f"  {name:<10}{asked.batch / took:7.3f} images/s, "
                f"{took / best['attmask']:.2f} times our time; peak {peak[name]:6.0f} MB, "
                f"ours is {peak['attmask'] / peak[name]:.2f} of it",
                flush=True,
            )
        alone = seconds_of_products(partial(ours, precision, 1))
        share = alone / best["attmask"]
        print(f"  matrix multiplies alone {alone:.2f} s of {best['attmask']:.2f}: {share:.0%}")
        laps = [ours.phases(precision, number) for number in range(3)][1:]
        fastest = {name: min(lap[name] for lap in laps) for name in laps[0]}
        whole = sum(fastest.values())
        print("  " + ", ".join(f"{name} {took / whole:.1%}" for name, took in fastest.items()))
        print(f"  reading the attention {attention_share(ours, precision):.2%}")
        high_against_random(precision, 2, asked.pairs)
    if {("bf16", "attmask"), ("fp32", "textbook")} <= seconds.keys():
        ratio = seconds["fp32", "textbook"] / seconds["bf16", "attmask"]
        print(f"bf16, the default here, against the textbook step in fp32: {ratio:.2f} times")


if __name__ == "__main__":
    main()
