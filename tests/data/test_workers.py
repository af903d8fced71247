"""A worker that dies is one line, raised where a batch is asked for and nowhere else."""

import gc
import os
import signal
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from attmask.data.workers import Feed, start_worker
from attmask.errors import UserError
from tests.runs import environment


class Squares(Dataset[Tensor]):
    """The square of each number; some numbers end the process that makes them."""

    def __init__(self, ends: dict[int, int] | None = None, pause: float = 0.0) -> None:
        self.ends, self.pause = ends or {}, pause

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(self.pause)
        if (status := self.ends.get(index)) is not None:
            os._exit(status)
        return torch.full((5000,), index**2)


def feed(data: Squares, workers: int = 2, **settings: Any) -> Feed[Tensor]:
    loader = DataLoader(data, batch_size=4, num_workers=workers, worker_init_fn=start_worker)
    made = Feed(loader, workers="train.workers", **settings)
    made.restart()
    return made


def workers_of(made: Feed[Tensor]) -> list[BaseProcess]:
    return list(made._workers)


def take_all(made: Feed[Tensor]) -> list[Tensor]:
    taken = []
    while True:
        try:
            taken.append(made.take())
        except StopIteration:
            return taken


@pytest.mark.parametrize("workers", [0, 2])
def test_all_is_made_in_order_and_the_handler_from_before_comes_back(workers: int) -> None:
    before = signal.getsignal(signal.SIGCHLD)
    made = feed(Squares(), workers)
    assert [int(batch[1, 0]) for batch in take_all(made)] == [(4 * i + 1) ** 2 for i in range(10)]
    made.close()
    after = signal.getsignal(signal.SIGCHLD)
    assert after == before or "torch" in str(getattr(after, "__module__", "")), "or PyTorch's own"


@pytest.mark.parametrize("pause", [0.0, 0.002, 0.02])
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_is_one_line_that_names_memory_and_the_picture(
    pause: float, victim: int
) -> None:
    made = feed(Squares(pause=pause), place=lambda pid: f"picture {pid}")
    made.take()
    killed = workers_of(made)[victim]
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(UserError) as caught:
        take_all(made)
    made.close()
    assert str(caught.value) == (
        f"a worker process was ended by signal Killed while it read picture {killed.pid}; the "
        "machine most likely ran out of memory: use fewer train.workers (2 now); if it ends at "
        "this picture again, take the picture out"
    )
    assert not any(worker.is_alive() for worker in workers_of(made))


def test_a_death_does_not_disturb_what_is_done_between_two_batches() -> None:
    made = feed(Squares(pause=0.005))
    made.take()
    pid = workers_of(made)[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    deadline, steps = time.monotonic() + 0.5, 0
    while time.monotonic() < deadline:  # PyTorch's handler would raise here
        steps += 1
    assert steps
    with pytest.raises(UserError, match="was ended by signal Killed; the machine most likely ran"):
        made.take()
    made.close()


@pytest.mark.parametrize("status", [0, 3])
def test_a_worker_that_ends_by_itself_is_one_line(status: int) -> None:
    made = feed(Squares(ends={17: status}))
    with pytest.raises(UserError, match=r"a worker process ended; if memory ran out, use fewer"):
        take_all(made)
    made.close()


def test_a_fault_in_a_worker_that_lives_on_keeps_its_traceback() -> None:
    class Faulty(Squares):
        def __getitem__(self, index: int) -> Tensor:
            raise KeyError("a fault of ours")

    made = feed(Faulty())
    with pytest.raises(KeyError, match="a fault of ours"):
        made.take()
    made.close()


def test_workers_end_at_once_where_something_still_holds_their_iterator() -> None:
    made = feed(Squares())
    held, workers = made._running, workers_of(made)
    began = time.monotonic()
    made.close()
    assert not any(worker.is_alive() for worker in workers)
    assert time.monotonic() - began < 4, "PyTorch waits 5 seconds for a worker that does not end"
    assert held is not None


def test_a_feed_lost_in_a_circle_of_references_ends_its_workers_at_once() -> None:
    made = feed(Squares())
    workers = workers_of(made)
    circle: list[Any] = [made]
    circle.append(circle)
    del made, circle
    began = time.monotonic()
    gc.collect()
    assert not any(worker.is_alive() for worker in workers)
    assert time.monotonic() - began < 4, "PyTorch waits 5 seconds for a worker that does not end"


FORK = """
import cv2, numpy as np
from torch.utils.data import DataLoader
from attmask.data.workers import start_worker

cv2.setNumThreads(4)
cv2.GaussianBlur(np.zeros((2000, 2000, 3), dtype=np.uint8), (31, 31), 5)  # on four threads
for _ in DataLoader(range(4), num_workers=2, worker_init_fn=start_worker):
    pass
assert cv2.getNumThreads() == 4
"""


def test_workers_start_in_a_program_in_which_opencv_has_threads() -> None:
    subprocess.run([sys.executable, "-c", FORK], env=environment(), check=True, timeout=60)
