"""Names of up to a billion files: compressed pages that any process maps and reads one by one."""

import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np
from jaxtyping import Int64, UInt8

from attmask.data.stores.columns import Chunks, Column
from attmask.errors import UserError

A_PAGE = 32
"""Names of a page: more compress better, fewer are found more quickly."""
_LEVEL = 1  # names compress as well at every level
_END = b"\0"  # no name of a file holds it
_FLUSHED_BYTES = 1 << 22


class Names(Sequence[str]):
    """A read-only list of names in the bytes of the file system.

    Page `p` is the compressed bytes of `block` from `ends[p - 1]` to `ends[p]`. Both arrays may lie
    in a file (`attmask.data.stores.mapped`); then all processes share them.
    """

    def __init__(
        self, block: UInt8[np.ndarray, " bytes"], ends: Int64[np.ndarray, " pages"], count: int
    ) -> None:
        if len(ends) != -(-count // A_PAGE) or (count and int(ends[-1]) != len(block)):
            raise ValueError(f"{len(ends)} pages of names cannot hold {count}")
        self.block, self.ends, self.length = block, ends, count
        # Plain views of both: every slice of a mapped array would be one more mapped array.
        self._bytes, self._stops = np.asarray(block), np.asarray(ends)
        self._opened = -1, list[bytes]()  # the last page: names are often read in order

    def __reduce__(self) -> tuple[type["Names"], tuple[np.ndarray, np.ndarray, int]]:
        return Names, (self.block, self.ends, self.length)

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        page, place = divmod(range(self.length)[index], A_PAGE)
        known, names = self._opened
        if known != page:
            names = self.page(page)
            self._opened = page, names
        return os.fsdecode(names[place])

    def __iter__(self) -> Iterator[str]:
        return (os.fsdecode(name) for page in range(len(self.ends)) for name in self.page(page))

    def page(self, number: int) -> list[bytes]:
        """The names of one page."""
        begin = int(self._stops[number - 1]) if number else 0
        packed = self._bytes[begin : int(self._stops[number])].tobytes()
        try:
            return zlib.decompress(packed).split(_END)
        except zlib.error as fault:  # of a long index, not all is checked when it is opened
            raise OSError(
                f"the index of the images is damaged ({fault}); remove index.npz of the run"
            ) from fault

    def take(self, rows: Int64[np.ndarray, " k"], scratch: Path | None = None) -> "Names":
        """The names of these rows."""
        builder = NamesBuilder(scratch)
        for row in rows:
            builder.add(os.fsencode(self[int(row)]))
        return builder.build()


class NamesBuilder:
    """Collects names without holding one object for each."""

    def __init__(self, scratch: Path | None = None) -> None:
        self._blocks, self._ends = Chunks(np.uint8, scratch), Column(scratch)
        self._written, self._packed = 0, bytearray()
        self._page: list[bytes] = []
        self._built: Names | None = None

    def __len__(self) -> int:
        if self._built is not None:
            return len(self._built)
        return len(self._ends) * A_PAGE + len(self._page)

    def add(self, name: bytes) -> None:
        """One more name, in the bytes of the file system."""
        self._page.append(name)
        if len(self._page) == A_PAGE:
            self._close_page()

    def _close_page(self) -> None:
        page = _END.join(self._page)
        if page.count(_END) >= len(self._page):
            wrong = next(os.fsdecode(name) for name in self._page if _END in name)
            raise UserError(f"the name {wrong!r} holds a zero byte, as no file's does; correct it")
        self._packed += zlib.compress(page, _LEVEL)
        self._ends.append(self._written + len(self._packed))
        self._page.clear()
        if len(self._packed) >= _FLUSHED_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._written += len(self._packed)
        self._blocks.add(np.frombuffer(self._packed, dtype=np.uint8))
        self._packed = bytearray()

    def build(self) -> Names:
        """What was added so far; nothing may be added after this."""
        if self._built is None:
            count = len(self)
            if self._page:
                self._close_page()
            if self._packed:
                self._flush()
            self._built = Names(self._blocks.build(), self._ends.build(), count)
        return self._built


def pack(names: Iterable[str]) -> Names:
    """The same names in pages."""
    builder = NamesBuilder()
    for name in names:
        builder.add(os.fsencode(name))
    return builder.build()
