"""How long the threads of OpenMP spin before they sleep, when they wait for each other on a CPU.

By default a waiting thread spins for milliseconds. Beside other work, such as the worker processes
of the training itself, it then holds the core that the thread it waits for needs: the demo makes a
fifth of its images per second beside a busy process on each core, where half would be its share.
Threads that sleep at once lose speed on a quiet machine. A thousand turns are a few microseconds:
half the speed beside other work, and on a quiet machine no less than by default
(benchmarks/threads.py).
"""

import os

SPIN_COUNT = 1000
VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def bound_spinning() -> None:
    """Let waiting threads sleep soon, unless the environment says how they wait.

    The OpenMP of PyTorch's wheels for Linux reads the variable once, when PyTorch is imported.
    """
    if not any(name in os.environ for name in VARIABLES):
        os.environ[VARIABLES[1]] = str(SPIN_COUNT)
