"""All parts as one table of rows in order, block after block: it is never in memory as a whole."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Int64

from attmask.embedding.images import Entry, ImageRows
from attmask.embedding.parts import Parts

DType = Literal["float32", "float16", "bfloat16"]
BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_BYTES_OF_A_BLOCK = 1 << 25
_ROWS_OF_A_BLOCK = 1 << 14


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows; features are read from disk when they are asked for."""

    images: ImageRows
    pieces: Sequence[tuple[Int64[np.ndarray, " _"], np.ndarray]]
    """Rows and their mapped features."""

    @property
    def features(self) -> np.ndarray:
        """The features of the rows."""
        return np.concatenate([features for _, features in self.pieces])

    @cached_property
    def entries(self) -> list[Entry]:
        """What is known about the images of the rows."""
        rows = (row for rows, _ in self.pieces for row in rows.tolist())
        return [self.images.piece(row).entry(row) for row in rows]

    @property
    def labels(self) -> Int64[np.ndarray, " k"]:
        """The labels; -1 where an image has none."""
        labels = [-1 if entry.label is None else entry.label for entry in self.entries]
        return np.array(labels, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Joined:
    """The features of all readable images, in order."""

    parts: Parts
    images: ImageRows
    shape: tuple[int, ...]
    """Of the features of one image."""
    dtype: DType

    @cached_property
    def rows(self) -> int:
        """The number of readable images."""
        return sum(len(self.parts.kept(part)[0]) for part in self.parts.done())

    def describe(self) -> dict[str, Any]:
        """The shape, the number format and the classes, as JSON."""
        return {
            "shape": [self.rows, *self.shape],
            "dtype": self.dtype,
            "classes": list(self.images.classes) if self.images.has_labels else None,
        }

    def blocks(self) -> Iterator[Block]:
        """Blocks of equally many rows, whatever the parts are."""
        bytes_of_row = BYTES[self.dtype] * math.prod(self.shape)
        size = max(1, min(_ROWS_OF_A_BLOCK, _BYTES_OF_A_BLOCK // bytes_of_row))
        pending: list[tuple[np.ndarray, np.ndarray]] = []
        held = 0
        for part in self.parts.done():
            rows, features = self.parts.kept(part)
            begin = 0
            while begin < len(rows):
                some = slice(begin, begin + min(size - held, len(rows) - begin))
                pending.append((rows[some], features[some]))
                held += some.stop - begin
                begin = some.stop
                if held == size:
                    yield Block(self.images, pending)
                    pending, held = [], 0
        if pending:
            yield Block(self.images, pending)
