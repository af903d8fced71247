"""Memory is counted in bytes and grows when it is taken."""

import multiprocessing
from multiprocessing.connection import Connection

from attmask.audit.memory import peak_bytes, private_bytes, total_bytes

SIZE = 64 * 2**20


def _take(pipe: Connection) -> None:
    """What a child has before and after it takes memory; it stays until told to go."""
    before = peak_bytes()
    taken = bytearray(b"x" * SIZE)
    pipe.send((before, peak_bytes(), len(taken)))
    pipe.recv()


def test_a_process_that_takes_memory_has_a_higher_peak_and_has_it_to_itself() -> None:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_take, args=(theirs,))
    child.start()
    before, after, _ = ours.recv()
    held = private_bytes(child.pid or 0)
    ours.send("go")
    child.join()
    assert after - before >= 0.9 * SIZE
    assert held is None or held >= SIZE
    total = total_bytes()
    assert total is None or total > after


def test_a_process_that_is_not_there_has_no_number() -> None:
    assert private_bytes(2**30) is None
