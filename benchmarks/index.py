"""What millions of images cost before the first one is read: seconds, memory and disk.

Each start runs in a process of its own, on one core. `first` lists the images and keeps the index;
`again` opens the index. Both compute the fingerprint that a run is known by, the first batch of an
epoch, and the places of some images. `own` is the memory that only this process has, at its peak
and in the end; `mapped` is what it has read of the index, which all processes of a machine share
and the system may drop. The last line of a kind starts several processes at once, and `own` is
then their sum, with every shared page counted once. The slope is that between the smallest and the
largest number of images.

The images are generated: a list of files that are not there, tar files of empty members, folders
of empty files. `list-index` and `shards-index` generate the index itself, in which names repeat
after a million, because a billion images take hours to list: only `again` is measured.

    python benchmarks/index.py [--images 300000 1000000] [--kinds list shards folders]
                               [--processes 8] [--folder /tmp]
    python benchmarks/index.py --kinds list shards --images 1000000 3000000 10000000
    python benchmarks/index.py --kinds list-index --images 10000000 1000000000
"""

import argparse
import multiprocessing
import os
import pickle
import platform
import shutil
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np

from attmask.data.config import DataConfig
from attmask.data.contents import fingerprint
from attmask.data.loader import Loader
from attmask.data.sources import open_images
from attmask.data.stores.columns import Chunks
from attmask.data.stores.index import Index, Part, Stamp
from attmask.data.stores.names import Names, pack
from attmask.data.views import ViewsConfig

BATCH = 1024
PLACES = 2000  # images whose place is looked up, as a worker does
CLASSES = 1000
A_SHARD = 10_000  # images
MOST_IN_FOLDERS = 1_000_000  # more empty files take long to make
A_BILLION = 1_000_000_000


@dataclass(frozen=True)
class Cost:
    """What one start took: seconds to open, of the fingerprint and of the first batch; bytes."""

    images: int
    opened: float
    hashed: float
    ordered: float
    looked_up: float
    own_peak: int
    own: int
    mapped: int
    index: int
    pickled: int


def name_of(image: int) -> tuple[str, str]:
    """The class and the name of an image, of the length of ImageNet's."""
    folder = f"n{image % CLASSES:08}"
    return folder, f"{folder}/{folder}_{image:08}.JPEG"


def make_list(root: Path, images: int) -> Path:
    """A list with labels."""
    file = root / "list.csv"
    with file.open("w") as opened:
        opened.write("path,label\n")
        for image in range(images):
            folder, name = name_of(image)
            opened.write(f"{name},{folder}\n")
    return file


def make_shards(root: Path, images: int) -> Path:
    """Tar files of empty members."""
    data = root / "shards"
    data.mkdir()
    for shard in range(0, images, A_SHARD):
        with (data / f"{shard // A_SHARD:06}.tar").open("wb", buffering=1 << 20) as opened:
            opened.write(headers(range(shard, min(shard + A_SHARD, images))).tobytes())
            opened.write(bytes(1024))
    return data


def headers(images: range) -> np.ndarray:
    """The tar headers of empty members, made at once: `tarfile` takes 60 microseconds for each."""
    names = np.array([name_of(image)[1].encode() for image in images], dtype="S100")
    empty = np.frombuffer(tarfile.TarInfo("").tobuf(tarfile.USTAR_FORMAT), dtype=np.uint8)
    made = np.tile(empty, (len(names), 1))
    made[:, :100] = names[:, None].view(np.uint8)
    made[:, 148:156] = ord(" ")
    sums = [f"{total:06o}\0 ".encode() for total in made.sum(axis=1, dtype=np.int64).tolist()]
    made[:, 148:156] = np.frombuffer(b"".join(sums), dtype=np.uint8).reshape(-1, 8)
    return made


def make_folders(root: Path, images: int) -> Path:
    """Folders of empty files."""
    data = root / "folders"
    for number in range(CLASSES):
        (data / name_of(number)[0]).mkdir(parents=True)
    for image in range(images):
        os.close(os.open(data / name_of(image)[1], os.O_CREAT | os.O_WRONLY))
    return data


def make_index(root: Path, images: int, kind: str) -> Path:
    """A file that stands for the images, and an index of them."""
    data = root / "images.txt"
    data.touch()
    os.utime(data, (0, 0))
    unit = min(images, 1_000_000)
    known = pack(name_of(image)[1] for image in range(unit))
    block, ends = Chunks(np.uint8, root), Chunks(np.int64, root)
    labels = Chunks(np.int16, root)
    blocks, sizes = Chunks(np.int32, root), Chunks(np.int32, root)
    for turn in range(images // unit):
        block.add(known.block)
        ends.add(known.ends + turn * len(known.block))
        labels.add(np.arange(unit) % CLASSES)
        if kind == "shards":
            blocks.add(np.arange(unit) % A_SHARD * 200)
            sizes.add(np.full(unit, 100_000))
    names = Names(block.build(), ends.build(), images)
    begins = np.arange(0, images, A_SHARD)
    part = Part("", names, labels.build(), tuple(name_of(i)[0] for i in range(CLASSES)))
    if kind == "shards":
        columns = {"block": blocks.build(), "size": sizes.build()}
        columns |= {"begin": begins, "shard": np.arange(len(begins))}
        part = replace(
            part, files=tuple(f"{i:06}.tar" for i in range(len(begins))), columns=columns
        )
    part = replace(part, fingerprint="generated")
    Index(kind, data, {"train": part}, {"": Stamp.of(data)}).save(root / "run")
    return data


KINDS: dict[str, Callable[[Path, int], Path]] = {
    "list": make_list,
    "shards": make_shards,
    "folders": make_folders,
    "list-index": lambda root, images: make_index(root, images, "files"),
    "shards-index": lambda root, images: make_index(root, images, "shards"),
}


def memory(*fields: str) -> list[int]:
    """Bytes of this process, as the system counts them."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    held = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines}
    return [held[field] for field in fields]


class Peak:
    """The most memory of its own that this process has had."""

    def __init__(self) -> None:
        self.bytes, self._done = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.1):
            self.bytes = max(self.bytes, memory("Anonymous")[0])

    def stop(self) -> int:
        """End the watch."""
        self._done.set()
        self._thread.join()
        return self.bytes


def start(data: Path, run: Path, answer: Connection) -> None:
    """Open the images as a run does, keep the index, and say what it cost."""
    own, mapped = memory("Anonymous", "Rss")
    mapped -= own
    peak, began = Peak(), time.process_time()
    images = open_images(data, index=run).keep_index(run)
    opened = time.process_time()
    fingerprint(images.train)
    hashed = time.process_time()
    loader = Loader(images.train, DataConfig(), ViewsConfig(), batch_size=BATCH, seed=0, workers=0)
    held = loader.order(0)  # as the loop holds it during an epoch
    first = held[0]
    ordered = time.process_time()
    drawn = np.random.default_rng(0).integers(len(images.train), size=PLACES).tolist()
    places = {images.train.place(index) for index in drawn}
    looked_up = time.process_time()
    assert len(first) == BATCH
    assert len(places) > 0.99 * PLACES * min(1, len(images.train) / 1e6)
    most = peak.stop()
    own_now, resident = memory("Anonymous", "Rss")
    answer.send(
        Cost(
            images=len(images.train),
            opened=opened - began,
            hashed=hashed - opened,
            ordered=ordered - hashed,
            looked_up=(looked_up - ordered) / PLACES,
            own_peak=max(most, own_now) - own,
            own=own_now - own,
            mapped=resident - own_now - mapped,
            index=sum(file.stat().st_size for file in run.glob("*.npz")),
            pickled=len(pickle.dumps(images.train)),
        )
    )


def start_beside(data: Path, run: Path, answer: Connection, barrier: Barrier) -> None:
    """One of several processes: say how much memory it adds, each shared page in parts."""
    barrier.wait()
    before = memory("Pss")[0]
    barrier.wait()
    images = open_images(data, index=run)
    fingerprint(images.train)
    loader = Loader(images.train, DataConfig(), ViewsConfig(), batch_size=BATCH, seed=0, workers=0)
    held = loader.order(0)
    assert len(held[0]) == BATCH
    for index in np.random.default_rng(os.getpid()).integers(len(images.train), size=PLACES):
        images.train.place(int(index))
    barrier.wait()
    after = memory("Pss")[0]
    barrier.wait()
    answer.send(after - before)


def measure(data: Path, run: Path) -> Cost:
    """One start in a fresh process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=start, args=(data, run, there))
    process.start()
    there.close()
    cost: Cost = here.recv()
    process.join()
    return cost


def measure_machine(data: Path, run: Path, processes: int) -> int:
    """The memory that several processes add together."""
    spawn = multiprocessing.get_context("spawn")
    barrier, started, total = spawn.Barrier(processes), [], 0
    for _ in range(processes):
        here, there = multiprocessing.Pipe()
        process = spawn.Process(target=start_beside, args=(data, run, there, barrier))
        process.start()
        there.close()
        started.append((process, here))
    for process, here in started:
        total += here.recv()
        process.join()
    return total


def show(kind: str, way: str, cost: Cost) -> None:
    """One line of the table."""
    numbers = (
        f"{cost.images:>14,}{cost.opened:>9.2f}{cost.hashed:>8.2f}{cost.ordered:>8.2f}"
        f"{cost.looked_up * 1e6:>10.1f}"
        f"{cost.own_peak / 1e6:>9.0f}{cost.own / 1e6:>8.0f}{cost.mapped / 1e6:>8.0f}"
        f"{cost.index / 1e6:>8.0f}{cost.pickled / 1e6:>9.2f}"
    )
    print(f"{kind + ', ' + way:<20}{numbers}", flush=True)


def show_slope(kind: str, way: str, least: Cost, most: Cost) -> None:
    """What each further image costs, and what a billion cost by that."""
    more = most.images - least.images
    seconds = most.opened + most.hashed + most.ordered - least.opened - least.hashed - least.ordered
    peak, own, index = (
        (getattr(most, field) - getattr(least, field)) / more
        for field in ("own_peak", "own", "index")
    )
    gigabytes = A_BILLION / 1e9
    print(
        f"{kind}, {way}: {seconds / more * 1e6:.3f} µs, own {own:.2f} bytes (peak {peak:.2f}), "
        f"index {index:.1f} bytes an image; a billion: {seconds / more * A_BILLION / 60:.1f} "
        f"minutes, own {own * gigabytes:.1f} GB (peak {peak * gigabytes:.1f}), "
        f"index {index * gigabytes:.1f} GB",
        flush=True,
    )


def run_kind(kind: str, sizes: list[int], processes: int, folder: Path | None) -> None:
    """Start twice at every size, then several processes at once; print costs and slopes."""
    ways = ("again",) if kind.endswith("-index") else ("first", "again")
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    machine = []
    for images in sizes:
        root = Path(tempfile.mkdtemp(prefix="attmask-index-", dir=folder))
        try:
            data = KINDS[kind](root, images)
            time.sleep(1)  # an index trusts only what was left alone for a moment
            for way, known in costs.items():
                known.append(measure(data, root / "run"))
                show(kind, way, known[-1])
            machine.append(measure_machine(data, root / "run", processes))
            print(f"{kind}, {processes} processes: {machine[-1] / 1e6:,.0f} MB", flush=True)
        finally:
            shutil.rmtree(root)
    if len(sizes) > 1:
        for way, known in costs.items():
            show_slope(kind, way, known[0], known[-1])
        slope = (machine[-1] - machine[0]) / (sizes[-1] - sizes[0])
        print(f"{kind}, {processes} processes: {slope:.2f} bytes an image on a machine")


def main() -> None:
    """Print what starts cost, kind by kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, nargs="+", default=[300_000, 1_000_000])
    parser.add_argument(
        "--kinds", nargs="+", choices=list(KINDS), default=["list", "shards", "folders"]
    )
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--folder", type=Path, help="where the images are generated")
    asked = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, one core")
    print(
        f"{'':<20}{'images':>14}{'open s':>9}{'hash s':>8}{'order s':>8}{'lookup µs':>10}"
        f"{'peak MB':>9}{'own MB':>8}{'mapped':>8}{'index':>8}{'pickled':>9}"
    )
    for kind in asked.kinds:
        sizes = sorted(asked.images)
        if kind == "folders":
            sizes = sorted({min(size, MOST_IN_FOLDERS) for size in (sizes[0] // 3, *sizes)})
        run_kind(kind, sizes, asked.processes, asked.folder)


if __name__ == "__main__":
    main()
