"""How several processes are launched: by torchrun, by srun, or by `--processes N`."""

import logging
import os
import re
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence

from attmask.errors import UserError

_STOP_SECONDS = 600
"""How long a stopped process may take to save before it is killed."""


def launched() -> int:
    """The number of processes that were launched together."""
    return int(_variable("WORLD_SIZE", "1"))


def launched_rank() -> int:
    """The rank of this process in its launch, also before and after its group exists."""
    return int(_variable("RANK", "0"))


def launched_here() -> int:
    """How many processes of the launch share this machine."""
    return int(_variable("LOCAL_WORLD_SIZE", "1"))


def local_rank() -> int:
    """The rank of this process among those of its machine."""
    return int(_variable("LOCAL_RANK", "0"))


def has_own_part() -> bool:
    """Whether Slurm gave this process its own cores and devices, so none are to be divided."""
    tasks, task = (os.environ.get(f"SLURM_{name}") for name in ("STEP_NUM_TASKS", "PROCID"))
    return launched() > 1 and (tasks, task) == (str(launched()), str(launched_rank()))


def export_environment() -> None:
    """Set the variables that PyTorch reads, where srun has set its own instead."""
    for name, value in _of_slurm(os.environ).items():
        os.environ.setdefault(name, value)


def _variable(name: str, default: str) -> str:
    return os.environ.get(name) or _of_slurm(os.environ).get(name, default)


def _of_slurm(environment: Mapping[str, str]) -> dict[str, str]:
    """torchrun's variables from those of a step of Slurm with several tasks.

    A batch script has a job but no step, so a command in it without srun is a process of its own.
    """
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", "1"))
    if tasks == 1 or "SLURM_PROCID" not in environment or "WORLD_SIZE" in environment:
        return {}
    here = _tasks_of_node(environment)
    return {
        "WORLD_SIZE": str(tasks),
        "RANK": environment["SLURM_PROCID"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "LOCAL_WORLD_SIZE": str(here),
        "MASTER_ADDR": first_host(environment["SLURM_STEP_NODELIST"]),
        "MASTER_PORT": _port(environment["SLURM_JOB_ID"], environment.get("SLURM_STEP_ID", "0")),
    }


def _port(job: str, step: str) -> str:
    """A port of each job and step, outside of the range that systems hand out by themselves."""
    return str(15_000 + (7 * int(job) + int(step)) % 15_000)


def _tasks_of_node(environment: Mapping[str, str]) -> int:
    """The tasks on this node, from a list such as 8(x3),4."""
    counts: list[int] = []
    for part in environment["SLURM_STEP_TASKS_PER_NODE"].split(","):
        count, _, times = part.partition("(x")
        counts += [int(count)] * int(times.rstrip(")") or "1")
    return counts[int(environment.get("SLURM_NODEID", "0"))]


def first_host(nodes: str) -> str:
    """The first host of a list of Slurm such as gpu[03-05,9],login1."""
    found = re.match(r"([^\[,]+)(?:\[([^\],-]+)[^\]]*\]([^,]*))?", nodes)
    if found is None:
        raise UserError(f"SLURM_STEP_NODELIST is {nodes!r}, which names no host; set MASTER_ADDR")
    before, number, after = found.groups(default="")
    return f"{before}{number}{after}"


def launch_here(count: int, words: Sequence[str], *, threads: int) -> int:
    """Run the command with these words in several processes of this machine; the exit status.

    PyTorch's agent watches them: when one fails, it ends the others.
    """
    # Imported here: only this way of launching needs it.
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # our lines say it
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
        shutdown_timeout=_STOP_SECONDS,
    )
    try:
        elastic_launch(config, sys.executable)("-u", "-m", "attmask", *words)
    except SignalException as stopped:
        return 128 + stopped.sigval
    except ChildFailedError as failed:
        # Those that a signal has ended first, because they could not say so.
        rank, failure = min(failed.failures.items(), key=lambda item: (item[1].exitcode >= 0, item))
        if failure.exitcode >= 0:
            return int(failure.exitcode)  # it has said why
        memory = ", perhaps because memory ran out" if failure.exitcode == -signal.SIGKILL else ""
        raise UserError(
            f"process {rank} was killed by signal {-failure.exitcode}{memory}; start the same "
            "command again to resume"
        ) from failed
    return 0
