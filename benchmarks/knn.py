"""Nearest neighbours of 10,000 among 100,000 features: ours, faiss's flat index, the bare multiply.

One thread's CPU time, the best of rounds in which all take turns, from features as a network gives
them to neighbours: our time holds the lengths of the vectors, faiss's its copy of the normalised
bank. The limit is the faster of numpy's and PyTorch's matrix multiply of the same blocks, done
alone. Memory is that of a process of its own, without the pages of the mapped bank file.

    OMP_NUM_THREADS=1 python benchmarks/knn.py [--rounds 3]        needs attmask[bench]
"""

import argparse
import multiprocessing
import platform
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import faiss
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.metrics.neighbours import nearest

KS = (20, 200)
BLOCK = (2048, 1024)  # queries x bank vectors, as in neighbours.py
MOST_TIMES_THE_LIMIT, MOST_MEGABYTES = 1.3, 256
ROUNDING = 2e-6

Found = tuple[Tensor, Tensor]


def ours(bank: Tensor, queries: Tensor, k: int) -> Found:
    """Similarities and indices by `nearest`."""
    chunks = list(nearest(bank, queries, k))
    return torch.cat([s for s, _ in chunks]), torch.cat([i for _, i in chunks])


def by_faiss(bank: Tensor, queries: Tensor, k: int) -> Found:
    """The same by a flat index of normalised vectors."""
    index = faiss.IndexFlatIP(bank.shape[1])
    index.add(functional.normalize(bank).numpy())
    similarity, found = index.search(functional.normalize(queries).numpy(), k)
    return torch.from_numpy(similarity), torch.from_numpy(found)


def multiply_alone(bank: Tensor, queries: Tensor, multiply: Callable[..., object]) -> None:
    """All products in our blocks, each written over the one before."""
    asked, rows = BLOCK
    block = torch.empty(asked, rows)
    for chunk in queries.split(asked):
        for piece in bank.split(rows):
            multiply(chunk, piece, block[: len(chunk), : len(piece)])


def with_numpy(chunk: Tensor, piece: Tensor, block: Tensor) -> None:
    """One block by numpy's library."""
    np.matmul(chunk.numpy(), piece.numpy().T, out=block.numpy())


def with_torch(chunk: Tensor, piece: Tensor, block: Tensor) -> None:
    """One block by PyTorch's library."""
    torch.mm(chunk, piece.T, out=block)


class Race:
    """The best time of each work, and what it gave last."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.found: dict[str, Found] = {}

    def run(self, name: str, work: Callable[[], Found | None]) -> None:
        """Do it once more."""
        began = time.process_time()
        found = work()
        seconds = time.process_time() - began
        self.seconds[name] = min(self.seconds.get(name, seconds), seconds)
        if found is not None:
            self.found[name] = found


def compare(bank: Tensor, queries: Tensor, mine: Found, theirs: Found) -> str:
    """In how many queries the neighbours differ, and by how much the similarities there."""
    differ = (mine[1] != theirs[1]).any(dim=1)
    exact_bank = functional.normalize(bank.double())
    worst = 0.0
    for row in differ.nonzero().flatten().tolist():
        exact = exact_bank @ functional.normalize(queries[row].double(), dim=0)
        gaps = exact[mine[1][row]] - exact[theirs[1][row]]
        worst = max(worst, float(gaps.abs().max()))
    told = f"{int(differ.sum())} of {len(queries)} queries have another order"
    verdict = "rounding alone" if worst < ROUNDING else "MORE THAN ROUNDING"
    return f"{told}; exact similarities at those places differ by at most {worst:.1e}: {verdict}"


def own_megabytes() -> float:
    """What this process holds now, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def search_and_watch(file: Path, queries: int, k: int, answer: Connection) -> None:
    """Search a mapped bank, and look at the memory all the while."""
    torch.set_num_threads(1)
    bank = torch.from_numpy(np.load(file, mmap_mode="c"))
    asked = bank[:queries].clone()
    np.matmul(np.ones((2048, 64), np.float32), np.ones((64, 64), np.float32))  # its own buffers
    before, done, peak = own_megabytes(), threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], own_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in nearest(bank, asked, k):
        pass
    done.set()
    watcher.join()
    answer.send(peak[0] - before)


def peak_megabytes(file: Path, queries: int, k: int) -> float:
    """The most that a search in a fresh process holds beside bank and queries."""
    here, there = multiprocessing.Pipe()
    arguments = (file, queries, k, there)
    process = multiprocessing.get_context("spawn").Process(target=search_and_watch, args=arguments)
    process.start()
    process.join()
    peak: float = here.recv()
    return peak


def write_bank(file: Path, images: int, width: int, *, collapsed: bool = False) -> None:
    """Random features, or the same for all images."""
    mapped = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(images, width))
    draw = np.random.default_rng(0)
    for begin in range(0, images, 65_536):
        rows = mapped[begin : begin + 65_536]
        rows[:] = 1 if collapsed else draw.random(rows.shape, dtype=np.float32) - 0.5
    mapped.flush()


def measure_memory(width: int, images: int, queries: int) -> None:
    """Print the peaks for a large bank and for features that are all the same."""
    with tempfile.TemporaryDirectory(prefix="attmask-knn-") as folder:
        file = Path(folder) / "bank.npy"
        for collapsed, most in ((False, images), (True, 100_000)):
            write_bank(file, min(images, most), width, collapsed=collapsed)
            for k in KS:
                peak = peak_megabytes(file, queries, k)
                kind = ", all features the same" if collapsed else ""
                size = f"{min(images, most):,} x {width}, {queries:,} queries, k = {k}{kind}"
                print(f"  {size}: {peak:.0f} MB beside the features", flush=True)
    print(f"  wanted: at most {MOST_MEGABYTES} MB; more queries only make more chunks")


def main() -> None:
    """Race, compare, measure memory, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bank", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=10_000)
    parser.add_argument("--large-bank", type=int, default=1_281_167)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    width = 384
    draw = torch.Generator().manual_seed(0)
    bank = torch.randn(asked.bank, width, generator=draw)
    queries = torch.randn(asked.queries, width, generator=draw)
    race = Race()
    for _ in range(asked.rounds):
        race.run("numpy", partial(multiply_alone, bank, queries, with_numpy))
        race.run("torch", partial(multiply_alone, bank, queries, with_torch))
        for k in KS:
            race.run(f"faiss {k}", partial(by_faiss, bank, queries, k))
            race.run(f"ours {k}", partial(ours, bank, queries, k))
    limit = min(race.seconds["numpy"], race.seconds["torch"])
    print(
        f"{date.today()}, {platform.machine()}, torch {torch.__version__}, numpy {np.__version__}"
    )
    print(f"faiss {faiss.__version__}; {asked.bank:,} x {width} against {asked.queries:,}, fp32")
    print(f"multiply alone: numpy {race.seconds['numpy']:.2f} s, torch {race.seconds['torch']:.2f}")
    for k in KS:
        mine, theirs = race.seconds[f"ours {k}"], race.seconds[f"faiss {k}"]
        print(f"k = {k}: ours {mine:.2f} s, faiss {theirs:.2f} s: {theirs / mine:.2f} times ours")
        print(f"  {mine / limit:.2f} times the multiply alone; wanted {MOST_TIMES_THE_LIMIT}")
        print(f"  {compare(bank, queries, race.found[f'ours {k}'], race.found[f'faiss {k}'])}")
    print("memory:", flush=True)
    measure_memory(width, asked.large_bank, min(asked.queries, 2048))


if __name__ == "__main__":
    main()
