"""The mask file of each image, in the layouts of common data sets, and the values stored in it."""

import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt16
from PIL import Image

from attmask.data.decode import one_line
from attmask.data.pictures.silence import silent_library, silent_reader
from attmask.data.source import Source
from attmask.data.sources import images_path, open_images
from attmask.data.stores.files import Files
from attmask.data.stores.folder import Walk, list_folder
from attmask.data.stores.splits import TRAIN, split_of
from attmask.errors import UserError
from attmask.reading import read_regular
from attmask.wording import agree, counted

TRIMAPS = "trimaps"
VALUES = 1 << 16
"""Masks have 8 or 16 bits."""
LAYOUTS = (
    "images/SPLIT/x.jpg beside masks/SPLIT/x.png (or labels, annotations), SPLIT/x.jpg beside "
    "SPLITannot/x.png or masks/SPLIT/x.png, or without splits images/x.jpg beside masks/x.png"
)
_IMAGES = "images"
_FOLDERS = ("masks", "labels", "annotations", TRIMAPS)
_BESIDE_EACH_SPLIT = "annot"
_ENDINGS = (".png", ".tif", ".tiff", ".bmp")  # of several masks of an image, the first
_NUMBERS = ("L", "P", "1", "I;16", "I;16B", "I")
_UNSTRETCHED = {"L;2": 85, "L;4": 17}
"""Pillow stretches PNGs of 2 and 4 bits to 8; class numbers are what is stored."""


@dataclass(frozen=True, eq=False)
class ImagesWithMasks:
    """The images of each split, the mask file of each image, and the kind of these masks."""

    splits: Mapping[str, tuple[Source, tuple[Path, ...]]]
    are_trimaps: bool


def find_masks(data: Path, *, channels: int | None = None) -> ImagesWithMasks:
    """The images of a folder with their masks; an error if an image has none."""
    data = images_path(data)
    if not data.is_dir():
        raise UserError(f"{data} is not a folder of images with masks; wanted {LAYOUTS}")
    listed = list_folder(data)
    has_train = TRAIN in map(split_of, listed.splits)
    within = data / _IMAGES if _IMAGES in listed.folders and not has_train else data
    beside = {*_FOLDERS, *(name + _BESIDE_EACH_SPLIT for name in listed.splits)}
    sources = open_images(within, channels=channels, beside=beside).splits
    return match_masks(data, sources)


def match_masks(data: Path, sources: Mapping[str, Source]) -> ImagesWithMasks:
    """The masks that lie in a folder beside these splits of it; an error if an image has none."""
    if any(not isinstance(source.store, Files) for source in sources.values()):
        raise UserError(f"{data} does not hold images as single files; wanted {LAYOUTS}")
    found = {}
    if sources[TRAIN].root != data:
        found = {kind: splits for kind in _kinds() if (splits := _masks(data, kind, sources))}
    if not found:
        raise UserError(f"no masks in {data}; wanted {LAYOUTS}")
    if len(found) > 1:
        folders = " and ".join(str(Path(_folder(kind, sources[TRAIN]))) for kind in found)
        raise UserError(f"{data} has masks in {folders}; remove or rename all but one")
    ((kind, masks),) = found.items()
    matched = {
        split: (source, _mask_of_each(split, source, data / _folder(kind, source), masks[split]))
        for split, source in sources.items()
    }
    return ImagesWithMasks(matched, are_trimaps=kind.startswith(TRIMAPS))


def folder_with_masks(sources: Mapping[str, Source]) -> Path | None:
    """The folder beside whose splits masks lie, in one of the layouts; None if there are none."""
    folder = sources["train"].root.absolute().parent
    data = folder.parent if folder.name == _IMAGES else folder
    has_masks = any(
        _files(data / _folder(kind, source)) for kind in _kinds() for source in sources.values()
    )
    return data if has_masks else None


def _kinds() -> Iterator[str]:
    """Where the masks of a split may lie."""
    yield "{split}" + _BESIDE_EACH_SPLIT
    for folder in _FOLDERS:
        yield folder + "/{split}"


def _folder(kind: str, source: Source) -> str:
    """The folder of the masks of a split, whose images lie in a folder of its name or in images."""
    return kind.format(split="" if source.root.name == _IMAGES else source.root.name)


def _masks(
    data: Path, kind: str, sources: Mapping[str, Source]
) -> dict[str, dict[str, Path]] | None:
    """The mask files of each split by their names without ending, or None if there are none."""
    found = {split: _files(data / _folder(kind, source)) for split, source in sources.items()}
    return found if any(found.values()) else None


def _files(folder: Path) -> dict[str, Path]:
    if not folder.is_dir():
        return {}
    names = [os.fsdecode(name) for name in Walk(folder).files()]
    return {
        _stem(name): folder / name
        for ending in reversed(_ENDINGS)
        for name in names
        if name.lower().endswith(ending)
    }


def _stem(name: str) -> str:
    return str(Path(name).with_suffix(""))


def _mask_of_each(
    split: str, source: Source, folder: Path, masks: Mapping[str, Path]
) -> tuple[Path, ...]:
    names = [_stem(source.name(index)) for index in range(len(source))]
    if missing := [index for index, name in enumerate(names) if name not in masks]:
        first = missing[0]
        raise UserError(
            f"{len(missing):,} of {counted(len(names), f'{split} image')} "
            f"{agree(len(missing), 'has', 'have')} no mask, the first {source.place(first)}; add "
            f"{folder / names[first]}.png, or take the image out"
        )
    return tuple(masks[name] for name in names)


def read_values(file: Path, size_wh: tuple[int, int] | None = None) -> UInt16[np.ndarray, "H W"]:
    """The numbers that a mask file stores; an error if it has another size than its image."""
    try:
        with silent_reader(), Image.open(io.BytesIO(read_regular(file))) as opened:
            if opened.mode not in _NUMBERS:
                raise UserError(
                    f"{file} is a picture of colours ({opened.mode}); a mask must hold the number "
                    "of a class in each pixel: save it as an 8-bit or 16-bit grey or palette PNG"
                )
            if size_wh is not None and opened.size != size_wh:
                raise UserError(_different_size(file, opened.size, size_wh))
            step = _UNSTRETCHED.get(str(opened.tile[0].args), 1) if opened.tile else 1
            with silent_library():
                stored = np.asarray(opened)
    except UserError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as fault:
        why = one_line(getattr(fault, "strerror", None) or "not a picture, or damaged")
        raise UserError(f"cannot read the mask {file}: {why}; create it again") from fault
    if stored.dtype.kind == "i" and not 0 <= stored.min() <= stored.max() < VALUES:
        raise UserError(
            f"{file} has values from {stored.min()} to {stored.max()}; a mask must hold class "
            f"numbers from 0 to {VALUES - 1}"
        )
    values = stored.astype(np.uint16)
    return values if step == 1 else values // np.uint16(step)


def _different_size(file: Path, mask_wh: tuple[int, int], image_wh: tuple[int, int]) -> str:
    width, height = image_wh
    line = (
        f"{file} has {mask_wh[0]} x {mask_wh[1]} pixels, but its image has {width} x {height}; a "
        "mask must have the size of its image"
    )
    if mask_wh == (height, width):
        line += " once that is turned upright by its EXIF orientation: turn the mask alike"
    return line
