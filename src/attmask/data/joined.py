"""Several splits of a data set as one source."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attmask.data.source import Raw, Source


@dataclass(frozen=True, eq=False)
class JoinedStore:
    """The pictures of several sources, one source after the other."""

    sources: tuple[Source, ...]
    begins: tuple[int, ...]

    def __len__(self) -> int:
        return self.begins[-1]

    def name(self, row: int) -> str:
        """The name of a picture in its own source."""
        source, index = self._at(row)
        return source.name(index)

    def read(self, row: int) -> Raw:
        """A picture as it is stored."""
        source, index = self._at(row)
        return source.read(index)

    @property
    def shards(self) -> Sequence[int]:
        """The row where each source begins."""
        return self.begins[:-1]

    def _at(self, row: int) -> tuple[Source, int]:
        number = int(np.searchsorted(self.begins, row, side="right")) - 1
        return self.sources[number], row - self.begins[number]


def join(sources: Sequence[Source]) -> Source:
    """All images of some splits, whose classes are numbered alike; one split stays as it is."""
    if len(sources) == 1:
        return sources[0]
    begins = tuple(np.cumsum([0, *map(len, sources)]).tolist())
    has_labels = all(source.labels is not None for source in sources)
    labels = np.concatenate([np.asarray(s.labels) for s in sources]) if has_labels else None
    classes = max((source.classes for source in sources), key=len) if has_labels else ()
    store = JoinedStore(tuple(sources), begins)
    return Source(sources[0].root, store, range(len(store)), labels, classes)
