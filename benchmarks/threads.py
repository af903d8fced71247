"""How waiting threads behave: the demo's training on a quiet machine and beside other work.

python benchmarks/threads.py [--seconds 8] [--rounds 3]

The threads of OpenMP wait for each other many times a step. By default they spin while they wait;
where other processes want the same cores, a spinning thread holds the core that the thread it
waits for needs. Each policy runs in a process of its own, because OpenMP reads its variables once;
policies alternate, and each round counts a quiet run and one beside a busy process on each core.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

POLICIES: dict[str, dict[str, str]] = {
    "OpenMP's default": {"GOMP_SPINCOUNT": ""},  # an empty number is none
    "passive": {"OMP_WAIT_POLICY": "passive"},
    **{f"spin {n:,} times": {"GOMP_SPINCOUNT": str(n)} for n in (1_000, 10_000)},
}
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS")
BUSY = "while True: pass"
IMAGES = "from pathlib import Path; from attmask.data.synthetic import write_folder; "
IMAGES += "write_folder(Path({folder!r}), train=640, val=10, size=64, seed=0)"
SETTINGS = ("schedule.epochs=100000", "monitor.knn_every_epochs=0", "monitor.tensorboard=false")


def measured(policy: dict[str, str], images: Path, seconds: float) -> float:
    """Images per second of the demo's recipe in a process of its own, with its worker."""
    environment = {k: v for k, v in os.environ.items() if k not in VARIABLES}
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        command = f"-m attmask pretrain {images} --recipe demo --out {run}".split()
        training = subprocess.Popen(
            [sys.executable, *command, *SETTINGS, "monitor.log_every_steps=5"],
            env={**environment, **policy},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        log, until = run / "metrics.jsonl", time.monotonic() + 120
        while not log.exists() and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(seconds)
        training.send_signal(signal.SIGTERM)
        training.wait()
        rates = [float(json.loads(line)["speed.images_per_second"]) for line in log.open()]
    return statistics.median(rates[1:] or rates)


def main() -> None:
    """Measure every policy and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    found: dict[tuple[str, bool], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images"
        subprocess.run([sys.executable, "-c", IMAGES.format(folder=str(images))], check=True)
        for _ in range(asked.rounds):
            for busy in (False, True):
                others = [
                    subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(cores * busy)
                ]
                try:
                    for name, policy in POLICIES.items():
                        found[name, busy].append(measured(policy, images, asked.seconds))
                finally:
                    for other in others:
                        other.kill()
                        other.wait()
    print(f"images/s of the demo on {cores} cores, median of {asked.rounds} (all)")
    for name in POLICIES:
        shown = [
            f"{statistics.median(rates):7.1f} ({', '.join(f'{rate:.0f}' for rate in rates)})"
            for rates in (found[name, False], found[name, True])
        ]
        print(f"  {name:<20} quiet {shown[0]:<28} beside a busy process a core {shown[1]}")


if __name__ == "__main__":
    main()
