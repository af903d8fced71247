"""Several real processes that communicate over gloo, as torchrun would start them."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

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
