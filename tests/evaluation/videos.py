"""Small videos in the layout of DAVIS: squares that move over a background of noise."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from attmask.evaluation.datasets.annotations import palette

SIDE_HW = (48, 80)


def write_davis(
    root: Path,
    names: Sequence[str] = ("ball", "car"),
    *,
    frames: int = 6,
    objects: int = 2,
    year: str = "2017",
) -> Path:
    """Sequences with palette masks, or with 0 and 255 where the year is 2016."""
    for seed, name in enumerate(names):
        write_sequence(
            root / "JPEGImages" / "480p" / name,
            root / "Annotations" / "480p" / name,
            frames=frames,
            objects=1 if year == "2016" else objects,
            binary=year == "2016",
            seed=seed,
        )
    lists = root / "ImageSets" / year
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text("".join(f"{name}\n" for name in names))
    return root


def write_sequence(
    shown: Path, masks: Path, *, frames: int, objects: int, binary: bool = False, seed: int = 0
) -> None:
    """Frames as JPEG, and a mask for each."""
    shown.mkdir(parents=True, exist_ok=True)
    masks.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(seed)
    background = chance.integers(0, 120, (*SIDE_HW, 3)).astype(np.uint8)
    colours = chance.integers(140, 255, (objects, 3)).astype(np.uint8)
    for frame in range(frames):
        pixels, mask = background.copy(), np.zeros(SIDE_HW, dtype=np.uint8)
        for number in range(objects):
            top, left = 4 + 22 * number, 6 + 5 * frame + 3 * number
            here = slice(top, top + 20), slice(left, left + 24)
            pixels[here], mask[here] = colours[number], number + 1
        Image.fromarray(pixels).save(shown / f"{frame:05d}.jpg", quality=95)
        write_mask(masks / f"{frame:05d}.png", mask * 255 if binary else mask, binary=binary)


def write_mask(file: Path, mask: np.ndarray, *, binary: bool = False) -> None:
    """A palette PNG, or a grey one."""
    image = Image.fromarray(mask)
    if not binary:
        image.putpalette(palette())
    image.save(file)
