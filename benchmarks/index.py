"""What a million images cost before the first one is read: seconds and memory, scanned and indexed.

Each way to start runs in a process of its own, on one core: `open_images`, and the fingerprint
that a run is known by. The files are empty, and the list names files that are not there.

    python benchmarks/index.py [--images 1000000] [--folders 1000]
"""

import argparse
import multiprocessing
import os
import platform
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path

from attmask.data.contents import fingerprint
from attmask.data.sources import open_images

MOST_SECONDS, MOST_MEGABYTES = 15, 150


@dataclass(frozen=True)
class Cost:
    """What one start took."""

    images: int
    seconds: float
    peak_megabytes: float
    scanned: bool


def make_folders(root: Path, images: int, folders: int) -> None:
    """Empty files, as many in each folder."""
    for folder in range(folders):
        where = root / f"n{folder:08}"
        where.mkdir(parents=True)
        for image in range(folder, images, folders):
            os.close(os.open(where / f"n{folder:08}_{image:08}.JPEG", os.O_CREAT | os.O_WRONLY))


def make_list(file: Path, images: int, folders: int) -> None:
    """The same names, with labels."""
    with file.open("w") as opened:
        opened.write("path,label\n")
        for image in range(images):
            folder = f"n{image % folders:08}"
            opened.write(f"{folder}/{folder}_{image:08}.JPEG,{folder}\n")


def resident_megabytes(field: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the most so far) of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def start(data: Path, run: Path, answer: Connection) -> None:
    """Open the images as a run does, say what it cost, and keep the index."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak of the imports does not count
    before, began = resident_megabytes("VmRSS"), time.perf_counter()
    images = open_images(data, index=run)
    fingerprint(images.train)
    seconds = time.perf_counter() - began
    images.keep_index(run)
    peak = resident_megabytes("VmHWM") - before
    answer.send(Cost(len(images.train), seconds, peak, images.found is not None))


def measure(data: Path, run: Path) -> Cost:
    """One start in a fresh process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=start, args=(data, run, there))
    process.start()
    process.join()
    cost: Cost = here.recv()
    return cost


def flatten(folders: Path, flat: Path) -> None:
    """Move all files into one folder."""
    flat.mkdir()
    for folder in folders.iterdir():
        for file in folder.iterdir():
            file.rename(flat / file.name)


def start_twice(kind: str, data: Path, run: Path) -> None:
    """Print what a start costs that must scan, and one that finds an index."""
    time.sleep(1)  # an index trusts only what was left alone for a moment
    for way in ("scanned", "indexed"):
        cost = measure(data, run)
        assert cost.scanned == (way == "scanned"), f"{kind} was not {way}"
        numbers = f"{cost.images:>12,}{cost.seconds:>10.1f}{cost.peak_megabytes:>10.0f}"
        print(f"{kind + ', ' + way:<28}{numbers}", flush=True)


def main() -> None:
    """Make the images, start twice on each kind, print the costs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--folders", type=int, default=1000)
    asked = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, one core")
    root = Path(tempfile.mkdtemp(prefix="attmask-index-"))
    try:
        many, flat, listed = root / "many", root / "flat", root / "list.csv"
        began = time.perf_counter()
        make_folders(many, asked.images, asked.folders)
        make_list(listed, asked.images, asked.folders)
        print(f"made {asked.images:,} empty files in {time.perf_counter() - began:.0f} s")
        print(f"{'':<28}{'images':>12}{'seconds':>10}{'peak MB':>10}", flush=True)
        start_twice(f"{asked.folders} folders", many, root / "run-many")
        flatten(many, flat)
        start_twice("one folder", flat, root / "run-flat")
        start_twice("a list", listed, root / "run-list")
        print(f"wanted: at most {MOST_SECONDS} s and {MOST_MEGABYTES} MB")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
