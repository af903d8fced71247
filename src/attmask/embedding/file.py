"""A file of features, and what lies beside it.

features.npy   features.npy.csv   features.npy.json   features.npy.unreadable.tsv
               names and labels   what was read       what could not be read
features.npy.parts/               until it is finished
"""

import os
from dataclasses import dataclass
from pathlib import Path

from attmask.errors import UserError


@dataclass(frozen=True)
class EmbeddingFile:
    """What has become of a file of features."""

    path: Path
    images: int
    """All images, with those that cannot be read."""
    done: int
    """How many of them were read."""
    shape: tuple[int, ...] = ()
    """The shape of the features, one row per readable image; empty if the file is not finished."""
    unreadable: int = 0
    was_there: bool = False
    """Whether an earlier call had finished it."""
    stopped_by: int = 0
    """The number of the signal that has stopped the work, or 0."""

    @property
    def finished(self) -> bool:
        """Whether the file is there and has all images."""
        return bool(self.shape)

    @property
    def names(self) -> Path | None:
        """The file of names and labels, if they are not in the file itself."""
        file = beside(self.path, ".csv")
        return None if self.path.suffix == ".parquet" else file

    @property
    def unreadable_list(self) -> Path:
        """The list of the images that cannot be read, with the reasons."""
        return unreadable_list(self.path)


def parts_folder(out: Path) -> Path:
    """The folder of the unfinished features of a file."""
    return beside(out, ".parts")


def unreadable_list(out: Path) -> Path:
    """The list of the images that cannot be read: path, tab, reason."""
    return beside(out, ".unreadable.tsv")


def check_out(out: Path, images: Path) -> None:
    """Raise an error where no file can be written."""
    if out.is_dir():
        raise UserError(f"--out {out} is a folder; give a file, such as {out / 'features.npy'}")
    above = next(folder for folder in out.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        raise UserError(f"cannot write {out}: {above} cannot be written to; choose another --out")
    if images.is_dir() and out.absolute().is_relative_to(images.absolute()):
        raise UserError(
            f"--out {out} is among the images of {images}, where it could be taken for one; "
            "choose a place outside"
        )


def beside(out: Path, ending: str) -> Path:
    """The file beside the features with the same name and one more ending."""
    return out.with_name(f"{out.name}{ending}")
