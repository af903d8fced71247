"""Sources of images in memory, for tests that read none or only small ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attmask.data.source import Raw


@dataclass(frozen=True)
class Numbers:
    """A store of images of 16 pixels that differ in one value: their number."""

    count: int
    channels: int = 3

    def __len__(self) -> int:
        return self.count

    def name(self, row: int) -> str:
        return f"{row}.png"

    def read(self, row: int) -> Raw:
        return np.full((16, 16, self.channels), row, dtype=np.uint8)

    @property
    def shards(self) -> Sequence[int]:
        return ()
