"""Millions of names in one block of bytes: a list of strings would cost four times as much."""

import os
from array import array
from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np
from jaxtyping import Int64, UInt8


class Names(Sequence[str]):
    """A read-only list of names: name `i` is the bytes from `ends[i - 1]` to `ends[i]`.

    Both arrays may lie in a file (`attmask.data.stores.mapped`); then all processes share them.
    """

    def __init__(self, block: UInt8[np.ndarray, " bytes"], ends: Int64[np.ndarray, " M"]) -> None:
        self.block, self.ends = block, ends
        # Plain views of both: every slice of a mapped array would be one more mapped array.
        self._bytes, self._stops = np.asarray(block), np.asarray(ends)

    def __reduce__(self) -> tuple[type["Names"], tuple[np.ndarray, np.ndarray]]:
        return Names, (self.block, self.ends)

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        begin = int(self._stops[index - 1]) if index else 0
        return os.fsdecode(self._bytes[begin : int(self._stops[index])].tobytes())

    def take(self, rows: Int64[np.ndarray, " k"]) -> "Names":
        """The names of these rows."""
        builder, begins = NamesBuilder(), np.concatenate([[0], self._stops[:-1]])
        for begin, end in zip(begins[rows].tolist(), self._stops[rows].tolist(), strict=True):
            builder.add(self._bytes[begin:end].tobytes())
        return builder.build()


class NamesBuilder:
    """Collects names without holding one object for each."""

    def __init__(self) -> None:
        self._block, self._ends = bytearray(), array("q")

    def __len__(self) -> int:
        return len(self._ends)

    def add(self, name: bytes) -> None:
        """One more name, in the bytes of the file system."""
        self._block += name
        self._ends.append(len(self._block))

    def build(self) -> Names:
        """What was added so far; nothing may be added after this."""
        ends = np.frombuffer(self._ends, dtype=np.int64)
        return Names(np.frombuffer(self._block, dtype=np.uint8), ends)


def pack(names: Iterable[str]) -> Names:
    """The same names in one block."""
    builder = NamesBuilder()
    for name in names:
        builder.add(os.fsencode(name))
    return builder.build()
