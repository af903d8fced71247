"""Annotated masks of video frames: the object of each pixel, as palette PNGs or as 0 and 255."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from attmask.errors import UserError

BINARY = 255
"""The object of masks without numbers."""
_VOID = 255
_WANTED = "wanted a palette PNG with the number of an object in each pixel, or 0 and 255"
_BITS = 8


@dataclass(frozen=True)
class Mask:
    """The values of a mask file; without a palette they are grey values."""

    file: Path
    values: UInt8[np.ndarray, "H W"]
    has_palette: bool

    @classmethod
    def read(cls, file: Path) -> "Mask":
        """Read a mask; every value must have a colour in the palette, if there is one."""
        try:
            with Image.open(file) as opened:
                colours = len(opened.getpalette() or ()) // 3 if opened.mode == "P" else 0
                values = np.array(opened if opened.mode in "LP" else opened.convert("L"))
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as fault:
            raise UserError(f"cannot read the mask {file} ({fault}); create it again") from fault
        if colours and int(values.max(initial=0)) >= colours:
            raise UserError(
                f"{file} has the value {values.max()}, but its palette has only {colours} colours; "
                f"{_WANTED}"
            )
        return cls(file, values, colours > 0)

    @property
    def size_wh(self) -> tuple[int, int]:
        """Width and height."""
        return self.values.shape[1], self.values.shape[0]

    def objects(self) -> tuple[int, ...]:
        """The values that are objects, in ascending order; this is the mask of a first frame."""
        present = [int(value) for value in np.unique(self.values) if value]
        numbered = [value for value in present if value != _VOID]
        if not present:
            raise UserError(f"{self.file} has no object; the first frame of a sequence needs one")
        if present == [BINARY]:
            return (BINARY,)
        if not self.has_palette and present != list(range(1, len(present) + 1)):
            raise self._refused(present)
        return tuple(numbered)

    def classes(self, objects: Sequence[int]) -> UInt8[np.ndarray, "H W"]:
        """0 for the background and 1, 2, ... for the objects of the first frame.

        As in the official evaluation, void pixels and objects of a palette that the first frame
        does not show are background.
        """
        present = np.unique(self.values).tolist()
        is_numbered = self.has_palette and tuple(objects) != (BINARY,)
        if not is_numbered and (strange := sorted(set(present) - {0, *objects})):
            raise self._refused(strange)
        table = np.zeros(1 << _BITS, dtype=np.uint8)
        table[list(objects)] = range(1, len(objects) + 1)
        classes: UInt8[np.ndarray, "H W"] = table[self.values]
        return classes

    def _refused(self, values: Sequence[int]) -> UserError:
        few = ", ".join(map(str, values[:4]))
        more = f" and {len(values) - 4} more" if len(values) > 4 else ""
        return UserError(f"{self.file} has the values {few}{more}, which are no objects; {_WANTED}")


@dataclass(frozen=True, eq=False)
class Annotations:
    """Reads the annotation of a frame as classes, together with the frame."""

    files: Sequence[Path]
    objects: Sequence[tuple[int, ...]]
    """For each frame, the objects of its sequence."""

    def __call__(
        self, pixels: UInt8[np.ndarray, "H W C"] | None, index: int
    ) -> UInt8[Tensor, "H W"]:
        """0 for the background and 1, 2, ... for the objects."""
        mask = Mask.read(self.files[index])
        if pixels is not None and pixels.shape[:2] != mask.values.shape:
            raise UserError(different_size(mask, (pixels.shape[1], pixels.shape[0])))
        return torch.from_numpy(mask.classes(self.objects[index]))


def different_size(mask: Mask, frame_wh: tuple[int, int]) -> str:
    """The line for a mask that does not fit its frame."""
    width, height = mask.size_wh
    return (
        f"{mask.file} has {width} x {height} pixels, but its frame has {frame_wh[0]} x "
        f"{frame_wh[1]}; a mask must have the size of its frame"
    )


def palette() -> list[int]:
    """The colours of DAVIS and PASCAL VOC: red, green, blue of 256 numbers, one after the other.

    The bits of a number are dealt to the three colours in turn, the lowest to the highest bit.
    """
    colours = np.zeros((1 << _BITS, 3), dtype=np.int64)
    numbers = np.arange(1 << _BITS)
    for bit in range(_BITS):
        colour, place = bit % 3, _BITS - 1 - bit // 3
        colours[:, colour] |= (numbers >> bit & 1) << place
    return [int(value) for value in colours.flatten()]


def as_palette_image(classes: UInt8[np.ndarray, "H W"], numbers: Sequence[int]) -> Image.Image:
    """A mask of classes with the numbers of the objects, as the official evaluation reads it."""
    image = Image.fromarray(np.array([0, *numbers], dtype=np.uint8)[classes])
    image.putpalette(palette())
    return image
