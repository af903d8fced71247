"""How many images a second one core makes views of, measured on generated pictures."""

import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from attmask.data.batch import BatchMaker, Request
from attmask.data.config import DataConfig
from attmask.data.source import everything
from attmask.data.synthetic import scene
from attmask.data.views import ViewsConfig

SIDE = 432  # about as many pixels as a photograph of ImageNet: 466 x 388 on average
PICTURES = 8


@dataclass(frozen=True)
class InMemory:
    """A store of encoded pictures in memory, so that no disk is measured."""

    files: tuple[bytes, ...]
    shards: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.files)

    def name(self, row: int) -> str:
        """A number and an ending."""
        return f"{row}.jpg"

    def read(self, row: int) -> bytes:
        """The file."""
        return self.files[row]


def images_per_core_second(views: ViewsConfig, seconds: float = 1.0) -> float:
    """Make views of generated JPEG pictures for some CPU time, in one thread."""
    source = everything(Path("generated"), InMemory(tuple(_jpeg(i) for i in range(PICTURES))))
    reading = torch.full((1, 2), -1)
    maker = BatchMaker(source, DataConfig(), views, seed=0, reading=reading)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        maker[Request(0, tuple(range(PICTURES)))]  # the first one imports and warms up
        began, made = time.process_time(), 0
        while (spent := time.process_time() - began) < seconds:
            maker[Request(1 + made, tuple(range(PICTURES)))]
            made += PICTURES
    finally:
        torch.set_num_threads(threads)
    return made / spent


def _jpeg(number: int) -> bytes:
    """A scene with so much grain that its file is as large as a photograph's, 100 kB."""
    grain = np.random.default_rng(number).normal(0, 7, size=(SIDE, SIDE, 1))
    pixels = np.clip(scene(number, seed=0, size=SIDE).image + grain, 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=93)
    return file.getvalue()
