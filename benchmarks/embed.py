"""`attmask embed` against the forward pass of the extractor alone, and a plain loop of timm.

One thread, no worker processes, the same files and weights, in rounds in which both take turns. The
overhead is the CPU time outside of the extractor's stream (loading the network, hashes, parts, the
file), as a share of the time inside, of one and the same run. Memory is that of a process of its
own that embeds an array of images with a small network: what it holds beside mapped files, at most.

    OMP_NUM_THREADS=1 python benchmarks/embed.py IMAGES [--images 320] [--rounds 3]
"""

import argparse
import multiprocessing
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import timm
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save_file
from torchvision.transforms import v2

import attmask
from attmask.data.sources import open_images
from attmask.data.subset import spread_evenly
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import ReadBatch
from attmask.models.backbone import BackboneConfig, build_backbone

NETWORK, SIZE, BATCH = "vit_small_patch16_224", 224, 64
SMALL = BackboneConfig(name="vit_tiny_patch16_224", patch_size=16, width=384, depth=1, heads=6)


@contextmanager
def timed_stream() -> Iterator[list[float]]:
    """Count the CPU time inside the extractor's stream, which reads images and passes them on."""
    stream, seconds = FeatureExtractor.stream, [0.0]

    def timed(extractor: FeatureExtractor, *arguments: Any, **settings: Any) -> Iterator[ReadBatch]:
        batches = stream(extractor, *arguments, **settings)
        while True:
            began = time.process_time()
            batch = next(batches, None)
            seconds[0] += time.process_time() - began
            if batch is None:
                return
            yield batch

    with patch.object(FeatureExtractor, "stream", timed):
        yield seconds


def embed(weights: Path, images: Path, out: Path) -> None:
    """Our command as a function."""
    attmask.write_embeddings(weights, images, out=out, batch_size=BATCH, workers=0)


def plain(weights: Path, images: Path, out: Path) -> None:
    """What a script would do: torchvision's transforms, timm's network, one array at the end."""
    network = timm.create_model(NETWORK, num_classes=0)
    network.load_state_dict(load_file(weights))
    network.eval()
    prepare = v2.Compose(
        [
            v2.Resize(256, interpolation=v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(SIZE),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    files = sorted(file for file in images.rglob("*") if file.is_file())
    features = []
    with torch.inference_mode():
        for begin in range(0, len(files), BATCH):
            batch = [prepare(Image.open(f).convert("RGB")) for f in files[begin : begin + BATCH]]
            features.append(network(torch.stack(batch)))
    np.save(out, torch.cat(features).numpy())


def seconds_of(work: Callable[..., None], *arguments: Path) -> float:
    """The CPU time of all threads."""
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


def own_megabytes() -> float:
    """What this process holds now, without mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def embed_and_watch(weights: Path, images: Path, out: Path, answer: Connection) -> None:
    """Embed, and look at the memory all the while."""
    torch.set_num_threads(1)
    done, peak = threading.Event(), [0.0]

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], own_megabytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    attmask.write_embeddings(f"{weights}@heads=6", images, out=out, workers=0)
    done.set()
    watcher.join()
    answer.send(peak[0])


def peak_megabytes(weights: Path, images: Path, out: Path) -> float:
    """The most that a fresh process holds while it embeds."""
    here, there = multiprocessing.Pipe()
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=embed_and_watch, args=(weights, images, out, there))
    process.start()
    process.join()
    peak: float = here.recv()
    return peak


def measure_memory(folder: Path, counts: tuple[int, ...]) -> None:
    """Print the peaks for few and for many images."""
    vit = build_backbone(SMALL, image_size=32, channels=3).vit
    save_file(vit.state_dict(), folder / "small.safetensors")
    for ending in (".npy", ".parquet", ".safetensors"):
        for count in counts:
            pixels = np.lib.format.open_memmap(
                folder / "pixels.npy", mode="w+", dtype=np.uint8, shape=(count, 32, 32, 3)
            )
            pixels[:] = np.arange(count, dtype=np.uint8)[:, None, None, None]
            pixels.flush()
            out = folder / f"{count}{ending}"
            peak = peak_megabytes(folder / "small.safetensors", folder / "pixels.npy", out)
            size = out.stat().st_size / 1e6
            print(f"  {count:,} images, {ending} of {size:.0f} MB: {peak:.0f} MB", flush=True)


def main() -> None:
    """Race, compare, measure memory, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, metavar="IMAGES")
    parser.add_argument("--images", type=int, default=320)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--counts", type=int, nargs="+", default=[5_000, 20_000, 80_000])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="attmask-embed-") as made:
        folder = Path(made)
        images, weights = folder / "images", folder / "weights.safetensors"
        images.mkdir()
        source = open_images(asked.data).train
        for number, index in enumerate(spread_evenly(None, len(source), asked.images)):
            place = Path(source.place(index))
            shutil.copy(place, images / f"{number:06}{place.suffix}")
        save_file(timm.create_model(NETWORK, num_classes=0).state_dict(), weights)
        ours, theirs, overheads = list[float](), list[float](), list[float]()
        for turn in range(asked.rounds):
            with timed_stream() as inside:
                ours.append(seconds_of(embed, weights, images, folder / f"{turn}.npy"))
            overheads.append(100 * (ours[-1] / inside[0] - 1))
            theirs.append(seconds_of(plain, weights, images, folder / "plain.npy"))
        gap = np.abs(np.load(folder / "0.npy") - np.load(folder / "plain.npy")).max()
        versions = f"torch {torch.__version__}, torchvision {torchvision.__version__}"
        print(f"{date.today()}, {platform.machine()}, {versions}, timm {timm.__version__}")
        print(f"{asked.images} images, {NETWORK} at {SIZE} pixels, fp32, one thread, no workers")
        for name, seconds in (("attmask embed", ours), ("torchvision and timm", theirs)):
            rates = ", ".join(f"{asked.images / each:.2f}" for each in seconds)
            print(f"  {name}: {rates} images per second of CPU, one number a round")
        told = ", ".join(f"{overhead:.1f} %" for overhead in overheads)
        print(f"  embed outside of the extractor's stream, of the time inside: {told}")
        print(f"  largest difference to the plain loop: {gap:.1e}", flush=True)
        print("memory of a process that embeds, without mapped files, at most:")
        measure_memory(folder, tuple(asked.counts))


if __name__ == "__main__":
    main()
