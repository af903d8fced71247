"""Whole images through a network of dense prediction, and the names of what is written of them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from attmask import atomic, distributed
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.pictures.endings import ENDINGS, HEIF_ENDINGS
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.images import read_in_order, say_unreadable
from attmask.evaluation.features.lockstep import agreed
from attmask.evaluation.reporting.overlay import overlay_size, resized_rgb
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.showing import Showing

OVERLAYS = "overlays"


@dataclass(frozen=True)
class Written:
    """What was written of some images."""

    folder: Path
    images: int
    """Those that have a prediction."""
    unreadable: int


class WholeImage(NamedTuple):
    """An image as a network sees it and as people do."""

    number: int
    """Its place among the images of all sources."""
    file_name: str
    """As it is called in the data."""
    name: str
    """Without ending, safe below a folder of results, and no other image's."""
    shown: UInt8[Tensor, "C h w"]
    size_hw: tuple[int, int]
    picture: UInt8[Tensor, "height width 3"]
    """To draw on; empty if nothing is drawn."""


@dataclass(frozen=True, eq=False)
class WholeImages:
    """Images of some sources, of which each process of a group takes its share."""

    sources: Mapping[str, Source]
    showing: Showing
    workers: int = 0
    overlays: bool = True

    def __len__(self) -> int:
        return sum(map(len, self.sources.values()))

    def each(self, out: Path, write: Callable[[WholeImage], None]) -> Written:
        """Write the predictions of all images; all processes of a group call it together."""
        unreadable, first = 0, 0
        renamed = self._renamed()
        with counting("predicting", len(self)) as tell:
            for source in self.sources.values():
                unread: list[int] = []
                own = self._written(source, first, renamed, write, unread)
                for _ in agreed(own, lambda _: 1, tell, lambda: False):
                    pass
                missing = sorted(index for part in distributed.gather(unread) for index in part)
                if missing:
                    quiet = not distributed.is_main()
                    say_unreadable(source, missing, quiet=quiet, doing="predictions")
                unreadable += len(missing)
                first += len(source)
        return Written(out, len(self) - unreadable, unreadable)

    def _file_name(self, source: Source, index: int) -> str:
        folder = source.root.name if len(self.sources) > 1 else ""
        return str(PurePosixPath(folder, source.name(index)))

    def _renamed(self) -> dict[int, str]:
        """The names of the images whose own one an earlier image has, too, by their number."""
        seen: set[int] = set()  # hashes, because the names of millions of images would be large
        renamed: dict[int, str] = {}
        number = 0
        for source in self.sources.values():
            for index in range(len(source)):
                file_name = self._file_name(source, index)
                name = safe_name(file_name)
                if hash(name) in seen:
                    longer = safe_name(file_name, keeps_ending=True)
                    others = chain([longer], (f"{longer}-{copy}" for copy in count(2)))
                    name = next(other for other in others if hash(other) not in seen)
                    renamed[number] = name
                seen.add(hash(name))
                number += 1
        return renamed

    def _written(
        self,
        source: Source,
        first: int,
        renamed: Mapping[int, str],
        write: Callable[[WholeImage], None],
        unread: list[int],
    ) -> Iterator[int]:
        """Write the share of this process, image after image; the unreadable ones are noted."""
        share = distributed.share_of(len(source))
        reader = _Reader(source, self.showing, self.overlays)
        batches = read_in_order(reader, share, batch_size=1, workers=self.workers)
        for index, (shown, size, picture) in zip(share, batches, strict=False):
            height, width = size[0].tolist()
            if height:
                number, file_name = first + index, self._file_name(source, index)
                name = renamed.get(number) or safe_name(file_name)
                size_hw = (height, width)
                image = WholeImage(number, file_name, name, shown[0], size_hw, picture[0])
                try:
                    write(image)
                except OSError as fault:
                    raise UserError(
                        f"cannot write the prediction of {source.place(index)}: "
                        f"{fault.strerror or fault}; {atomic.what_to_do(fault)}"
                    ) from fault
            else:
                unread.append(index)
            yield index


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads images, in worker processes or in this one."""

    source: Source
    showing: Showing
    pictures: bool

    def __call__(self, index: int) -> tuple[Tensor, ...]:
        """The image as it is shown, its own height and width, and a picture to draw on."""
        none = torch.zeros(0, 0, 3, dtype=torch.uint8)
        try:
            pixels = decode(self.source, index, self.showing.data)
        except UnreadableImageError:
            blank = torch.zeros(self.showing.data.channels, 1, 1, dtype=torch.uint8)
            return blank, torch.zeros(2, dtype=torch.int64), none
        height, width = pixels.shape[:2]
        if self.pictures:
            none = torch.from_numpy(resized_rgb(pixels, overlay_size((width, height))))
        return self.showing(pixels), torch.tensor([height, width]), none


def safe_name(name: str, *, keeps_ending: bool = False) -> str:
    """A name without the ending of a picture that stays below a folder, whatever it contains."""
    parts = [part for part in name.replace("\\", "/").replace(":", "/").split("/") if part.strip()]
    parts = [part for part in parts if part not in (".", "..")] or ["image"]
    path = PurePosixPath(*parts)
    is_picture = path.suffix.lower() in (*ENDINGS, *HEIF_ENDINGS)
    return str(path.with_suffix("") if is_picture and not keeps_ending else path)


def check_folder(out: Path, images: Path) -> None:
    """Raise an error if results would be written among the images or over a file."""
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder to write to")
    if out.absolute() == images.absolute():
        raise UserError(f"{out} is the folder of the images; give another one to write to")


def in_folder(out: Path, kind: str, name: str, ending: str) -> Path:
    """Where a file of an image goes; its folder is made."""
    file = out / kind / f"{name}{ending}"
    file.parent.mkdir(parents=True, exist_ok=True)
    return file
