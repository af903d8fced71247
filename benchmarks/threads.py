"""How waiting threads behave: the demo's step on a quiet machine and beside other work.

python benchmarks/threads.py [--seconds 8] [--rounds 3]

The threads of OpenMP wait for each other many times a step. By default they spin while they wait;
where other processes want the same cores, a spinning thread holds the core that the thread it
waits for needs. Each policy runs in a process of its own, because OpenMP reads its variables once;
policies alternate, and each round counts a quiet run and one beside a busy process on each core.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict

POLICIES: dict[str, dict[str, str]] = {
    "OpenMP's default": {"GOMP_SPINCOUNT": ""},  # an empty number is none
    "passive": {"OMP_WAIT_POLICY": "passive"},
    **{f"spin {n:,} times": {"GOMP_SPINCOUNT": str(n)} for n in (50, 200, 1_000, 3_000, 10_000)},
}
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
BUSY = "while True: pass"


def measure(seconds: float) -> float:
    """Images per second of the demo's step in this process, without worker processes."""
    import torch

    from attmask.data.views import Views
    from attmask.hardware import Precision
    from attmask.networks import build_distiller
    from attmask.optim import build_optimizer
    from attmask.recipe import load_recipe
    from attmask.schedules import Schedules
    from attmask.step import train_step

    config = load_recipe("demo")
    distiller = build_distiller(config)
    optimizer = build_optimizer(distiller.student, config.optim)
    precision = Precision.choose(config.train.precision, torch.device("cpu"))
    schedules = Schedules(config.schedule, steps_per_epoch=100, batch_size=64)
    views = Views(torch.randn(2, 64, 3, 48, 48), torch.randn(2, 64, 3, 24, 24))
    steps, began = -3, time.perf_counter()
    while steps <= 0 or time.perf_counter() - began < seconds:
        train_step(distiller, optimizer, views, schedules.at(steps + 3), precision, clip=3.0)
        steps += 1
        if steps == 0:
            began = time.perf_counter()
    return 64 * steps / (time.perf_counter() - began)


def measured(policy: dict[str, str], seconds: float) -> float:
    """The same in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    command = [sys.executable, __file__, "--measure", str(seconds)]
    said = subprocess.run(
        command, env={**environment, **policy}, check=True, capture_output=True, text=True
    )
    return float(said.stdout)


def main() -> None:
    """Measure every policy and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", type=float)
    asked = parser.parse_args()
    if asked.measure is not None:
        print(measure(asked.measure))
        return
    cores = len(os.sched_getaffinity(0))
    found: dict[tuple[str, bool], list[float]] = defaultdict(list)
    for _ in range(asked.rounds):
        for busy in (False, True):
            others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores * busy)]
            try:
                for name, policy in POLICIES.items():
                    found[name, busy].append(measured(policy, asked.seconds))
            finally:
                for other in others:
                    other.kill()
                    other.wait()
    print(f"images/s of the demo's step on {cores} threads, median of {asked.rounds} (all)")
    for name in POLICIES:
        shown = [
            f"{statistics.median(rates):7.1f} ({', '.join(f'{rate:.0f}' for rate in rates)})"
            for rates in (found[name, False], found[name, True])
        ]
        print(f"  {name:<26} quiet {shown[0]:<28} beside a busy process a core {shown[1]}")


if __name__ == "__main__":
    main()
