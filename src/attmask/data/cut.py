"""Cut crops out of a picture that is decoded no larger than needed, and resize them."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8

from attmask.data.draws import CropBox, ViewParameters


def best_shrink(views: Iterable[ViewParameters], shrinks: Sequence[int]) -> int:
    """The largest factor to shrink a picture by while decoding, such that no crop is enlarged."""
    room = min(min(_extent(view.box)) / view.size for view in views)
    return max(shrink for shrink in shrinks if shrink == 1 or shrink <= room)


def cut(
    pixels: UInt8[np.ndarray, "H W C"], full_size_wh: tuple[int, int], view: ViewParameters
) -> UInt8[np.ndarray, "size size C"]:
    """One view's crop at the view's size, bicubic with antialiasing, as Pillow would resize it.

    The box refers to `full_size_wh`; the pixels may be fewer.
    """
    left, top, right, bottom = on_grid(view.box, full_size_wh, (pixels.shape[1], pixels.shape[0]))
    crop = torch.from_numpy(pixels[top:bottom, left:right]).permute(2, 0, 1)[None]
    # torch's own resize of bytes, several times as fast as Pillow's: rows first, as Pillow does.
    whole_pixels = crop.clone(memory_format=torch.channels_last)
    resized = F.interpolate(whole_pixels, (view.size, view.size), mode="bicubic", antialias=True)
    return np.ascontiguousarray(resized[0].permute(1, 2, 0).numpy())


def _extent(box: CropBox) -> tuple[int, int]:
    left, top, right, bottom = box
    return right - left, bottom - top


def on_grid(box: CropBox, full_wh: tuple[int, int], here_wh: tuple[int, int]) -> CropBox:
    """Scale the box to the decoded pixels: the nearest integers, at least one pixel per side."""
    if full_wh == here_wh:
        return box
    low, high = [], []
    for side in (0, 1):
        ratio = here_wh[side] / full_wh[side]
        first = min(round(box[side] * ratio), here_wh[side] - 1)
        low.append(first)
        high.append(max(first + 1, min(round(box[side + 2] * ratio), here_wh[side])))
    return low[0], low[1], high[0], high[1]
