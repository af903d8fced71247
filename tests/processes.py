"""Several real processes that communicate over gloo, as torchrun would start them."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from attmask.monitor import read_metrics
from tests.runs import environment

ROOT = Path(__file__).parent.parent


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def start_group(
    words: Sequence[str | Path] | Callable[[int], Sequence[str | Path]],
    count: int,
    *,
    ranks: Sequence[int] | None = None,
    **variables: str,
) -> list[subprocess.Popen[str]]:
    """Start `python WORDS` in each of `count` processes (or only in those with some ranks).

    The words may depend on the rank; `variables` are added to the environment.
    """
    together = {
        **environment(),
        "PYTHONPATH": os.pathsep.join([environment()["PYTHONPATH"], str(ROOT)]),
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        **variables,
    }
    return [
        subprocess.Popen(
            [sys.executable, *map(str, words(rank) if callable(words) else words)],
            env={**together, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for rank in (range(count) if ranks is None else ranks)
    ]


def finish_group(group: Sequence[subprocess.Popen[str]], seconds: float) -> list[tuple[int, str]]:
    """Exit status and output of each process; an error if one takes longer."""
    try:
        said = [process.communicate(timeout=seconds)[0] for process in group]
    finally:
        for process in group:
            process.kill()
    return [(process.returncode, text) for process, text in zip(group, said, strict=True)]


def run_group(words: Sequence[str | Path], count: int, *, seconds: float = 300) -> list[str]:
    """The output of each process, all of which must succeed."""
    ended = finish_group(start_group(words, count), seconds)
    assert [status for status, _ in ended] == [0] * count, "\n".join(text for _, text in ended)
    return [text for _, text in ended]


def steps_logged(run: Path) -> int:
    """How many records the log of a run has."""
    return len(read_metrics(run)) if (run / "metrics.jsonl").exists() else 0


def wait_for(happened: Callable[[], bool], what: str, seconds: float = 90) -> None:
    """Wait until something has happened; `what` is said if it does not."""
    until = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def children_of(launcher: int) -> list[int]:
    """The processes that a launcher has started, in the order of their ranks."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
            variables = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [v for v in variables if re.fullmatch(rb"RANK=\d+", v)]
        if re.search(rf"^PPid:\t{launcher}$", status, re.MULTILINE) and ranks:
            found.append((int(ranks[0][5:]), int(folder.name)))
    return [pid for _, pid in sorted(found)]
