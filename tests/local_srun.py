"""srun for one machine: starts the tasks of a step here, with Slurm's variables; run as a script.

Like Slurm, it sends a signal to every task, kills those that are left `--wait` seconds after the
first has ended, and ends with the highest status.
"""

import math
import os
import signal
import subprocess
import sys
import time
from types import FrameType


def status_of(task: subprocess.Popen[bytes]) -> int:
    """The status that srun gives for a task: 128 and the signal where one ended it."""
    return 128 - task.returncode if task.returncode < 0 else task.returncode


def main(words: list[str]) -> int:
    """Run the command behind the options in as many processes as SLURM_NTASKS says."""
    options = [word for word in words[: words.index("-m")] if word.startswith("--")]
    (patience,) = (float(word[7:]) for word in options if word.startswith("--wait="))
    count = int(os.environ["SLURM_NTASKS"])
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(count),
        "SLURM_STEP_TASKS_PER_NODE": str(count),
        "SLURM_STEP_NODELIST": "127.0.0.1",
        "SLURM_NODEID": "0",
    }
    tasks = [
        subprocess.Popen(
            words[len(options) :],
            env={**os.environ, **step, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)},
        )
        for rank in range(count)
    ]

    def forward(number: int, frame: FrameType | None) -> None:
        for task in tasks:
            task.send_signal(number)

    signal.signal(signal.SIGTERM, forward)
    first_end = math.inf
    while None in [task.poll() for task in tasks]:
        if any(task.returncode is not None for task in tasks):
            first_end = min(first_end, time.monotonic())
        if time.monotonic() > first_end + patience:
            for task in tasks:
                task.kill()
        time.sleep(0.01)
    return max(map(status_of, tasks))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
