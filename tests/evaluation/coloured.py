"""Images whose classes are colours, so that any network can tell them apart."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = np.array([[220, 30, 30], [30, 200, 40], [40, 60, 230]], dtype=np.uint8)
NAMES = ("red", "green", "blue")
IGNORED = 255


def write_coloured(root: Path, *, size_hw: tuple[int, int] = (48, 64), **splits: int) -> Path:
    """Write some images of each split with masks: 4 x 4 cells, whose top lines have no class."""
    chance = np.random.default_rng(0)
    for split, count in splits.items():
        for number in range(count):
            cells = chance.integers(len(COLOURS), size=(4, 4))
            mask = np.kron(cells, np.ones((size_hw[0] // 4, size_hw[1] // 4), np.int64))
            noise = chance.integers(-20, 21, size=(*mask.shape, 3))
            pixels = np.clip(COLOURS[mask] + noise, 0, 255).astype(np.uint8)
            labels = mask.astype(np.uint8)
            labels[:2] = IGNORED
            for folder, values in (("images", pixels), ("masks", labels)):
                file = root / folder / split / f"{number}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(values).save(file)
    (root / "classes.txt").write_text("\n".join(NAMES))
    return root
