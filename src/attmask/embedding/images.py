"""The images that are embedded, in one order: the splits of a data set one after the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from attmask.data.images import Images
from attmask.data.source import Source
from attmask.errors import UserError

SplitName = Literal["all", "train", "val", "test"]


class Entry(NamedTuple):
    """What is known about one image."""

    name: str
    split: str
    label: int | None
    class_name: str | None


@dataclass(frozen=True, eq=False)
class Piece:
    """The rows of one split, and its images."""

    split: str
    rows: range
    source: Source
    below: str
    """The path of the split below the images, with a slash, or nothing."""

    def entry(self, row: int) -> Entry:
        """The image of a row."""
        index, source = row - self.rows.start, self.source
        name = f"{self.below}{source.name(index)}"
        if source.labels is None:
            return Entry(name, self.split, None, None)
        label = int(source.labels[index])
        return Entry(name, self.split, label, source.classes[label])

    def indices(self, rows: range) -> range:
        """The indices in the source of some of its rows."""
        return range(rows.start - self.rows.start, rows.stop - self.rows.start)


class ImageRows:
    """All images by row: row 0 is the first image of the first split."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        return self.pieces[-1].rows.stop

    @property
    def has_labels(self) -> bool:
        """Whether a split has labels."""
        return any(piece.source.labels is not None for piece in self.pieces)

    @property
    def classes(self) -> Sequence[str]:
        """The classes of all splits; those of one split begin with those of train."""
        return max((piece.source.classes for piece in self.pieces), key=len)

    def piece(self, row: int) -> Piece:
        """The split that a row belongs to."""
        return next(piece for piece in self.pieces if row in piece.rows)


def image_rows(images: Images, path: Path, split: SplitName) -> ImageRows:
    """The images of one split, or of all splits in the order train, val, test.

    Names are relative to `path`, the folder of the images, where the files of a split lie below it.
    """
    chosen: Mapping[str, Source] = images.splits
    if split != "all":
        found = images.split_to_test(split)
        assert found is not None
        chosen = {found: images.splits[found]}
    pieces, start = [], 0
    for name, source in chosen.items():
        rows = range(start, start + len(source))
        pieces.append(Piece(name, rows, source, _below(path, source)))
        start = rows.stop
    if start == 0:
        raise UserError(f"{path} has no images to embed; give a folder with some")
    return ImageRows(pieces)


def _below(path: Path, source: Source) -> str:
    if source.root != path and source.root.is_relative_to(path):
        return f"{source.root.relative_to(path).as_posix()}/"
    return ""
