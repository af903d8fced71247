"""Views of photographs against the usual way, torchvision's transforms on Pillow images.

Both decode from files in memory and end with normalised floats: two views of 224 pixels and six of
96. CPU time of one thread, best of alternating rounds. Photographs of ImageNet's size are read
from --photos where it is there, else made up; those of 12 megapixels are made of these.

    python benchmarks/views.py [--photos FOLDER] [--images 60] [--rounds 3]
"""

import argparse
import io
import itertools
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision import transforms

from attmask.data.batch import BatchMaker, Request
from attmask.data.config import IMAGENET_MEAN, IMAGENET_STD, DataConfig
from attmask.data.cut import best_shrink, cut, on_grid
from attmask.data.decode import open_picture
from attmask.data.draws import draw
from attmask.data.source import everything
from attmask.data.views import ViewsConfig

PHOTOS = Path(__file__).resolve().parents[2] / "shared" / "data" / "photos"
CONFIG = ViewsConfig(local_crops=6)
BATCH = 4


class InMemory:
    """A store of encoded files that are read already, so that the disk is not measured."""

    shards: Sequence[int] = ()

    def __init__(self, files: Sequence[bytes]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def name(self, row: int) -> str:
        """A number, which is all they have."""
        return f"{row}.jpg"

    def read(self, row: int) -> bytes:
        """The file."""
        return self.files[row]


class PillowBlur:
    """A blur of random width, as the reference makes it."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def __call__(self, image: Image.Image) -> Image.Image:
        """Perhaps blur."""
        if torch.rand(()) >= self.probability:
            return image
        return image.filter(ImageFilter.GaussianBlur(float(torch.empty(()).uniform_(0.1, 2.0))))


def usual_way(data: DataConfig) -> Callable[[bytes], list[Tensor]]:
    """Pillow decodes, torchvision transforms Pillow images, one view after the other."""

    def pipeline(
        size: int, scale: tuple[float, float], blur: float, solarise: float
    ) -> transforms.Compose:
        jitter = transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)
        return transforms.Compose(
            [
                transforms.RandomResizedCrop(
                    size, scale=scale, interpolation=transforms.InterpolationMode.BICUBIC
                ),
                transforms.RandomHorizontalFlip(0.5),
                transforms.RandomApply([jitter], p=0.8),
                transforms.RandomGrayscale(0.2),
                PillowBlur(blur),
                transforms.RandomSolarize(128, p=solarise),
                transforms.ToTensor(),
                transforms.Normalize(data.mean, data.std),
            ]
        )

    views = [
        pipeline(224, (0.25, 1.0), 1.0, 0.0),
        pipeline(224, (0.25, 1.0), 0.1, 0.2),
        *[pipeline(96, (0.05, 0.25), 0.5, 0.0)] * CONFIG.local_crops,
    ]

    def make(file: bytes) -> list[Tensor]:
        image = Image.open(io.BytesIO(file)).convert("RGB")
        return [view(image) for view in views]

    return make


def lightly_way() -> Callable[[bytes], object] | None:
    """lightly's transform of the same method, where it is installed (extra `bench`)."""
    try:
        from lightly.transforms.ibot_transform import IBOTTransform
    except ImportError:
        return None
    transform = IBOTTransform(
        global_crop_scale=(0.25, 1.0),
        local_crop_scale=(0.05, 0.25),
        n_local_views=CONFIG.local_crops,
    )

    def make(file: bytes) -> object:
        return transform(Image.open(io.BytesIO(file)).convert("RGB"))

    return make


def seconds_of_peer(make: Callable[[bytes], object], files: Sequence[bytes]) -> float:
    """CPU seconds an image."""
    began = time.process_time()
    for file in files:
        make(file)
    return (time.process_time() - began) / len(files)


def seconds_of_ours(maker: BatchMaker, images: int, epoch: int) -> float:
    """CPU seconds an image, in batches as the loader makes them."""
    began = time.process_time()
    for first in range(0, images - images % BATCH, BATCH):
        batch = maker[Request(epoch, tuple(range(first, first + BATCH)))]
        if isinstance(batch, Exception):
            raise batch
        batch.on(torch.device("cpu")).normalise(IMAGENET_MEAN, IMAGENET_STD)
    return (time.process_time() - began) / (images - images % BATCH)


def photographs(folder: Path, count: int) -> list[bytes]:
    """Files of ImageNet's size: real ones where they are, else soft colours with noise."""
    found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))[:count]
    if found:
        return [path.read_bytes() for path in found]
    chance = np.random.default_rng(0)
    made = []
    for _ in range(count):
        coarse = chance.integers(0, 256, (30, 40, 3), dtype=np.uint8)
        smooth = cv2.resize(coarse, (466, 388), interpolation=cv2.INTER_CUBIC)
        noise = chance.integers(-12, 13, smooth.shape)
        made.append(jpeg(Image.fromarray((smooth + noise).clip(0, 255).astype(np.uint8))))
    return made


def jpeg(image: Image.Image) -> bytes:
    """A file of usual quality."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def enlarged(files: Sequence[bytes], count: int, columns: int) -> list[bytes]:
    """Pictures of 4000 x 3000 pixels: so many photographs abreast, enlarged to fill them.

    One alone is as soft as a picture of a small lens; several are as dense as one of a good camera.
    """
    wide, high = 4000 // columns, 3000 // columns
    decoded = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    tiles = [image.resize((wide, high), Image.Resampling.BICUBIC) for image in decoded]
    chance = np.random.default_rng(0)
    made = []
    for _ in range(count):
        canvas = Image.new("RGB", (4000, 3000))
        for x, y in itertools.product(range(columns), repeat=2):
            canvas.paste(tiles[chance.integers(len(tiles))], (x * wide, y * high))
        made.append(jpeg(canvas))
    return made


def compare(title: str, files: Sequence[bytes], rounds: int) -> None:
    """Best of alternating rounds, and the ratios."""
    data = DataConfig()
    source = everything(Path("memory"), InMemory(files))
    maker = BatchMaker(source, data, CONFIG, 0, torch.full((1, 2), -1))
    peers = {"torchvision on Pillow": usual_way(data), "lightly": lightly_way()}
    best: dict[str, float] = {}
    for number in range(rounds):
        measured = {"attmask": seconds_of_ours(maker, len(files), number)}
        for name, make in peers.items():
            if make is not None:
                measured[name] = seconds_of_peer(make, files)
        best = {name: min(took, best.get(name, took)) for name, took in measured.items()}
    kilobytes = sum(map(len, files)) / len(files) / 1000
    print(f"{title}: {len(files)} files of {kilobytes:.0f} kB on average")
    for name, took in best.items():
        ratio = (
            f"attmask is {took / best['attmask']:.2f} times as fast" if name != "attmask" else ""
        )
        print(f"  {name:<24}{1 / took:8.1f} images/s  {1000 * took:8.2f} ms  {ratio}")


def shrinking_shows(files: Sequence[bytes]) -> None:
    """How far crops of pictures that shrank while decoded are from crops of whole ones."""
    source = everything(Path("memory"), InMemory(files))
    apart, moved, shrunk = [], [], 0
    for index in range(len(files)):
        picture = open_picture(source, index, DataConfig())
        views = [
            draw(CONFIG, picture.size_wh, seed=0, epoch=0, sample=index, view=view)
            for view in range(CONFIG.count)
        ]
        shrink = best_shrink(views, picture.shrinks)
        if shrink == 1:
            continue
        shrunk += 1
        whole, fewer = picture.pixels(), picture.pixels(shrink)
        for view in views:
            ours = cut(fewer, picture.size_wh, view).astype(int)
            grid = on_grid(view.box, picture.size_wh, (fewer.shape[1], fewer.shape[0]))
            left, top, right, bottom = (shrink * edge for edge in grid)
            same = replace(view, box=(left, top, right, bottom))
            apart.append(np.abs(ours - cut(whole, picture.size_wh, same)).mean())
            moved.append(np.abs(ours - cut(whole, picture.size_wh, view)).mean())
    print(f"  {shrunk} of {len(files)} shrink while decoded", end="")
    if shrunk:
        print(
            f"; mean difference from crops of the whole picture {np.mean(apart):.2f} levels of 255,"
        )
        print(f"  and {np.mean(moved):.2f} with their edges moved to whole decoded pixels", end="")
    print()


def main() -> None:
    """Measure both sizes and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photos", type=Path, default=PHOTOS)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--large", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    files = photographs(asked.photos, asked.images)
    print(
        f"{date.today()}, {platform.processor() or platform.machine()}, torch {torch.__version__}"
    )
    compare("photographs", files, asked.rounds)
    shrinking_shows(files)
    for title, abreast in (("soft", 1), ("middling", 2), ("dense", 5)):
        large = enlarged(files, asked.large, abreast)
        compare(f"12 megapixels, {title}", large, asked.rounds)
        shrinking_shows(large)


if __name__ == "__main__":
    main()
