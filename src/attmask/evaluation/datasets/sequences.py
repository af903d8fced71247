"""Video sequences with annotated objects: DAVIS 2017 and 2016, or any folders of frames."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Literal

from attmask.data.config import DataConfig
from attmask.data.decode import open_picture
from attmask.data.pictures.endings import picture_endings
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.datasets.annotations import BINARY, Annotations, Mask, different_size
from attmask.evaluation.datasets.listed import files_source
from attmask.settings import Config, setting

_FRAMES, _MASKS, _LISTS = "JPEGImages", "Annotations", "ImageSets"
_YEARS = ("2017", "2016")
_FEWEST = 3  # frames: the first and the last are not measured


@dataclass(frozen=True)
class VideoSequence:
    """The frames of one sequence, by their indices in the source, and their annotations."""

    name: str
    frames: range
    names: tuple[str, ...]
    """The frames' names without their endings."""
    masks: tuple[Path, ...]
    size_hw: tuple[int, int]
    objects: tuple[int, ...]
    """The values of the objects in the first annotation."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of the objects; the one of a mask of 0 and 255 is 1."""
        return (1,) if self.objects == (BINARY,) else self.objects


@dataclass(frozen=True, eq=False)
class Videos:
    """Sequences, whose frames follow each other in one source."""

    frames: Source
    sequences: tuple[VideoSequence, ...]

    @property
    def sources(self) -> Mapping[str, Source]:
        """All frames."""
        return {"frames": self.frames}

    @cached_property
    def annotations(self) -> Annotations:
        """The annotation of each frame of the source."""
        pairs = [(file, each.objects) for each in self.sequences for file in each.masks]
        return Annotations([file for file, _ in pairs], [objects for _, objects in pairs])


class Sequences(Config):
    """DAVIS in its official layout, or folders with the frames and masks of one sequence each."""

    layout: ClassVar[str] = (
        "DAVIS: JPEGImages/480p/SEQUENCE/00000.jpg, Annotations/480p/SEQUENCE/00000.png and "
        "ImageSets/2017/val.txt (or 2016); or folders SEQUENCE/ with 00000.jpg and 00000.png "
        "for each frame. Masks are palette PNGs, or 0 and 255"
    )

    year: Literal["auto", "2017", "2016"] = setting(
        "auto",
        "year of the list of sequences (auto: 2017 if there is one, else 2016)",
        paper="2017",
    )
    split: str = setting("val", "name of the list of sequences", paper="val")
    resolution: str = setting("480p", "folder of frames and masks in DAVIS", paper="480p")

    def open(self, path: Path) -> Videos:
        """Open the sequences; all of their frames and annotations must exist and fit together."""
        if not path.is_dir():
            raise UserError(f"{path} is not a folder; wanted {self.layout}")
        root = next((each for each in (path, path / "DAVIS") if (each / _FRAMES).is_dir()), path)
        found = self._of_davis(root) if (root / _FRAMES).is_dir() else _of_folders(path)
        if not found:
            raise UserError(f"{path} has no sequences of frames; wanted {self.layout}")
        return _opened(root, found)

    def _of_davis(self, root: Path) -> list["_Files"]:
        """The listed sequences, or all if there are no lists."""
        frames, masks = (
            below if (below := root / kind / self.resolution).is_dir() else root / kind
            for kind in (_FRAMES, _MASKS)
        )
        if (root / _LISTS).is_dir():
            names = self._listed(root / _LISTS)
        else:
            names = sorted(each.name for each in frames.iterdir() if each.is_dir())
        for name in names:
            if not (frames / name).is_dir():
                raise UserError(
                    f"the frames of {name} are missing in {frames}; wanted {self.layout}"
                )
        return [_Files.between(name, frames / name, masks / name) for name in names]

    def _listed(self, lists: Path) -> list[str]:
        """The sequences of the official list, which names them or, in 2016, all of their frames."""
        years = _YEARS if self.year == "auto" else (self.year,)
        wanted = [lists / year / f"{self.split}.txt" for year in years]
        if "2016" in years:
            wanted.append(lists / self.resolution / f"{self.split}.txt")
        file = next((file for file in wanted if file.is_file()), None)
        if file is None:
            raise UserError(
                f"{' or '.join(str(each) for each in wanted)} is missing; wanted {self.layout}"
            )
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as fault:
            raise UserError(f"cannot read {file} ({fault}); download it again") from fault
        first = [line.split()[0] for line in lines if line.strip()]
        return list(dict.fromkeys(Path(each).parent.name or each for each in first))


@dataclass(frozen=True)
class _Files:
    """The files of one sequence, sorted by name."""

    name: str
    frames: Sequence[Path]
    masks: Mapping[str, Path]
    """By the name of the frame."""
    mask_folder: Path

    @classmethod
    def between(cls, name: str, frames: Path, masks: Path) -> "_Files":
        """Frames and masks from their folders; in one folder, all PNGs are masks."""
        endings = picture_endings()
        pictures = sorted(each for each in frames.iterdir() if each.suffix.lower() in endings)
        pngs = sorted(masks.glob("*.png")) if masks.is_dir() else []
        shown = [each for each in pictures if frames != masks or each.suffix.lower() != ".png"]
        return cls(name, shown, {each.stem: each for each in pngs}, masks)

    def check(self) -> None:
        """Raise an error for missing frames and annotations."""
        names = [frame.stem for frame in self.frames]
        if len(names) < _FEWEST:
            raise UserError(
                f"sequence {self.name} has {len(names)} frames; at least {_FEWEST} are needed, "
                "because the first and the last are not measured"
            )
        if missing := self._missing_frame(names):
            raise UserError(
                f"frame {missing} of sequence {self.name} is missing in {self.frames[0].parent}; "
                "labels are propagated from frame to frame, so add it"
            )
        first = self.mask_folder / f"{names[0]}.png"
        if names[0] not in self.masks:
            raise UserError(
                f"sequence {self.name} has no annotation of its first frame; add the mask {first}"
            )
        if lacking := [name for name in names if name not in self.masks]:
            raise UserError(
                f"sequence {self.name} has no annotation of {len(lacking)} of its {len(names)} "
                f"frames; add the mask {self.mask_folder / lacking[0]}.png"
            )

    def _missing_frame(self, names: Sequence[str]) -> str | None:
        """A frame that has an annotation or a number between others, but no file."""
        if without := sorted(set(self.masks) - set(names)):
            return without[0]
        if not all(name.isdecimal() for name in names):
            return None
        steps = {after - before for before, after in pairwise(map(int, names))}
        for name, after in pairwise(names):
            if int(after) - int(name) > min(steps):
                return str(int(name) + min(steps)).zfill(len(name))
        return None


def _of_folders(path: Path) -> list[_Files]:
    """Each folder with frames is a sequence."""
    folders = sorted(each for each in path.iterdir() if each.is_dir())
    found = [_Files.between(folder.name, folder, folder) for folder in folders]
    return [each for each in found if each.frames]


def _opened(root: Path, found: Sequence[_Files]) -> Videos:
    """The sequences as one source, with frames and first masks that fit together."""
    for files in found:
        files.check()
    paths = [(files.name, frame.relative_to(root)) for files in found for frame in files.frames]
    source = files_source(
        root,
        [path.as_posix() for _, path in paths],
        [name for name, _ in paths],
        [files.name for files in found],
    )
    sequences: list[VideoSequence] = []
    begin = 0
    for files in found:
        names = tuple(frame.stem for frame in files.frames)
        frames = range(begin, begin + len(names))
        first = Mask.read(files.masks[names[0]])
        size_wh = _common_size(source, frames, files.name)
        if first.size_wh != size_wh:
            raise UserError(different_size(first, size_wh))
        masks = tuple(files.masks[name] for name in names)
        objects = first.objects()
        size_hw = (size_wh[1], size_wh[0])
        sequences.append(VideoSequence(files.name, frames, names, masks, size_hw, objects))
        begin += len(names)
    return Videos(source, tuple(sequences))


def _common_size(source: Source, frames: range, name: str) -> tuple[int, int]:
    """Width and height of all frames of a sequence, from their headers."""
    first_wh = open_picture(source, frames[0], DataConfig()).size_wh
    for frame in frames[1:]:
        size_wh = open_picture(source, frame, DataConfig()).size_wh
        if size_wh != first_wh:
            raise UserError(
                f"sequence {name} has frames of different sizes: {source.place(frames[0])} has "
                f"{first_wh[0]} x {first_wh[1]} pixels, {source.place(frame)} has "
                f"{size_wh[0]} x {size_wh[1]}; resize them to one size"
            )
    return first_wh
