"""Label propagation in videos: ours, inside the window alone, and the plain masked N x N matrix.

Frames of 480 x 832 pixels with patches of 16 and of 8, features of width 384 that move over the
frame, the first frame and the last seven as context. One thread's CPU time of a frame with full
context, the best of rounds in which both take turns, without the network. Memory is the peak of a
process of its own beside what it holds before. The masks of all frames are compared.

    OMP_NUM_THREADS=1 python benchmarks/video.py [--rounds 3] [--patches 16 8]
"""

import argparse
import multiprocessing
import platform
import threading
import time
from collections.abc import Callable
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.video.propagation import Propagation, Tracker, mask_of_labels
from benchmarks.peers.davis import PlainTracker

SIZE_HW, WIDTH, CLASSES = (480, 832), 384, 3
FULL = 8  # frames of context
LEAST_SPEED, MOST_MEMORY = 3.0, 1 / 3

Follow = Callable[[Tensor], Tensor]


def video(frames: int, patch: int) -> tuple[list[Tensor], Tensor]:
    """Smooth features that shift by a patch in each frame, with noise; labels of the first."""
    height, width = (side // patch for side in SIZE_HW)
    draw = torch.Generator().manual_seed(0)
    scene = torch.randn(1, WIDTH, height, width + frames, generator=draw)
    scene = functional.avg_pool2d(scene, 3, stride=1, padding=1)[0]
    noise = 0.1 * torch.randn(frames, WIDTH, height, width, generator=draw)
    shown = [scene[:, :, i : i + width] + noise[i] for i in range(frames)]
    mask = torch.zeros(height, width, dtype=torch.int64)
    for number in range(1, CLASSES):
        left = number * width // (CLASSES + 1)
        mask[height // 4 : height // 2, left : left + width // 6] = number
    return shown, functional.one_hot(mask, CLASSES).float()


def ours(features: Tensor, labels: Tensor) -> Follow:
    """Our tracker."""
    return Tracker(Propagation(), features, labels).follow


def plain(features: Tensor, labels: Tensor) -> Follow:
    """The published one."""
    return PlainTracker(features, labels).follow


def race(patch: int, rounds: int) -> tuple[float, float, float]:
    """The best seconds of a frame with full context, ours and plain, and the share of pixels in
    which the masks agree."""
    frames, labels = video(FULL + rounds, patch)
    mine, theirs = ours(frames[0], labels), plain(frames[0], labels)
    best = [float("inf"), float("inf")]
    same = []
    for number, frame in enumerate(frames[1:], start=1):
        found = []
        for which, follow in enumerate((mine, theirs)):
            began = time.process_time()
            found.append(follow(frame))
            if number >= FULL:
                best[which] = min(best[which], time.process_time() - began)
        masks = [mask_of_labels(each, patch, SIZE_HW) for each in found]
        same.append(float(np.mean(masks[0] == masks[1])))
    return best[0], best[1], min(same)


def own_megabytes() -> float:
    """What this process holds now, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def follow_and_watch(kind: str, patch: int, answer: Connection) -> None:
    """Follow until the context is full, and look at the memory all the while."""
    torch.set_num_threads(1)
    torch.mm(torch.ones(64, 64), torch.ones(64, 64))  # the library's own buffers
    frames, labels = video(FULL + 1, patch)
    before, done, peak = own_megabytes(), threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(0.002):
            peak[0] = max(peak[0], own_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    follow = {"ours": ours, "plain": plain}[kind](frames[0], labels)
    for frame in frames[1:]:
        follow(frame)
    done.set()
    watcher.join()
    answer.send(peak[0] - before)


def peak_megabytes(kind: str, patch: int) -> float:
    """The most that a fresh process holds beside frames and library."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=follow_and_watch, args=(kind, patch, there)
    )
    process.start()
    process.join()
    peak: float = here.recv()
    return peak


def main() -> None:
    """Race, compare, measure memory, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--patches", type=int, nargs="+", default=[16, 8])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{date.today()}, {platform.machine()}, torch {torch.__version__}, one thread, fp32")
    for patch in asked.patches:
        height, width = (side // patch for side in SIZE_HW)
        mine, theirs, same = race(patch, asked.rounds)
        print(f"patches of {patch}: {height} x {width}, {FULL} context frames, width {WIDTH}")
        print(f"  ours {mine:.3f} s, plain {theirs:.3f} s a frame: {theirs / mine:.1f} times")
        print(f"  masks agree in {same:.4%} of the pixels of the worst frame", flush=True)
        memory = {kind: peak_megabytes(kind, patch) for kind in ("ours", "plain")}
        share = memory["ours"] / memory["plain"]
        print(
            f"  memory: ours {memory['ours']:.0f} MB, plain {memory['plain']:.0f} MB: {share:.2f}"
        )
    print(
        f"wanted: at least {LEAST_SPEED:.0f} times as fast, at most {MOST_MEMORY:.2f} of the memory"
    )


if __name__ == "__main__":
    main()
