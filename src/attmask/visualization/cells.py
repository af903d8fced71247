"""The cells of a sheet as pixels: a photo, and maps of patches over it.

Every patch of a cell has the same whole number of pixels, so its borders are sharp.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from attmask.mask import Grid
from attmask.visualization.colours import (
    HIDDEN,
    HIDDEN_OUTLINE,
    PAPER,
    colours,
    head_colours,
)

CELL = 224
"""The longer side of a cell in pixels, up to half a patch for each patch."""
TOP_MASS = 0.6
"""The share of its attention that the patches of a head hold (supplementary of the paper)."""
_BRIGHTEST = 0.99
_MAP_OPACITY = 0.65
_DARKENED = 0.35
_FADED = 0.75

Pixels = UInt8[np.ndarray, "height width 3"]


def top_mass(attention: Float[Tensor, "... N"], mass: float = TOP_MASS) -> Bool[Tensor, "... N"]:
    """The smallest set of most attended patches that has this share of the attention."""
    order = attention.argsort(dim=-1, descending=True, stable=True)
    held = attention.gather(-1, order).double().cumsum(dim=-1)
    before = held - attention.gather(-1, order).double()
    kept = before < mass * held[..., -1:]
    return torch.zeros_like(kept).scatter_(-1, order, kept)


def patch_pixels(grid: Grid) -> int:
    """The side of a patch in a cell."""
    return max(1, round(CELL / max(grid)))


def photo(image: UInt8[Tensor, "C H W"], grid: Grid) -> Pixels:
    """The crop in colour in the size of a cell; of more than three channels the first three."""
    shown = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    side = patch_pixels(grid)
    picture = Image.fromarray(shown.permute(1, 2, 0).contiguous().numpy())
    return np.asarray(
        picture.resize((grid[1] * side, grid[0] * side), Image.Resampling.BICUBIC)
    ).copy()


def colour_range(values: Float[Tensor, "..."]) -> tuple[float, float]:
    """From the minimum to the 99th percentile: a few outliers would leave all others dark."""
    return float(values.min()), float(values.flatten().float().quantile(_BRIGHTEST))


def map_cell(
    image: Pixels,
    values: Float[Tensor, "rows cols"],
    low: float | None = None,
    high: float | None = None,
) -> Pixels:
    """Values as colours over the grey image, by default in the range of these values alone."""
    own_low, own_high = colour_range(values)
    least, most = own_low if low is None else low, own_high if high is None else high
    strength = (values - least) / max(most - least, torch.finfo(torch.float32).tiny)
    return _blended(_grey(image), _enlarged(colours(strength).numpy(), image), _MAP_OPACITY)


def heads_cell(image: Pixels, heads: Float[Tensor, "H N"], grid: Grid) -> Pixels:
    """The patches with the top 60 % of the attention of each head in its colour.

    Where heads overlap, the colour is that of the head with the largest share of its attention
    there, because mixed colours could not be told from those of other heads. The more heads
    overlap, the stronger the colour.
    """
    looks = top_mass(heads)
    palette = torch.tensor(head_colours(len(heads)), dtype=torch.uint8)
    shares = heads / heads.sum(dim=1, keepdim=True).clamp_min(torch.finfo(heads.dtype).tiny)
    strongest = (shares * looks).argmax(dim=0)
    count = looks.sum(dim=0)
    opacity = torch.where(count > 0, 110 + 90 * count / len(heads), 0.0) / 255
    overlay = _enlarged(palette[strongest].view(*grid, 3).numpy(), image)
    alpha = _enlarged(opacity.view(*grid, 1).numpy(), image)
    dark = _blended(_grey(image), np.zeros_like(image), _DARKENED)
    return _blended(dark, overlay, alpha)


def masked_cell(image: Pixels, hidden: Bool[Tensor, "rows cols"]) -> Pixels:
    """The input of the student: hidden patches are grey with a thin outline."""
    cell = image.copy()
    side = image.shape[0] // hidden.shape[0]
    for row, col in hidden.nonzero().tolist():
        patch = cell[row * side : (row + 1) * side, col * side : (col + 1) * side]
        patch[:] = HIDDEN
        if side >= 4:
            patch[0], patch[-1], patch[:, 0], patch[:, -1] = (HIDDEN_OUTLINE,) * 4
    return cell


def colour_cell(
    image: Pixels,
    patches: UInt8[Tensor, "rows cols 3"],
    shown: Bool[Tensor, "rows cols"] | None = None,
) -> Pixels:
    """A colour for each patch; where patches are not shown, the grey image is faded to paper."""
    cell = _enlarged(patches.numpy(), image)
    if shown is None:
        return cell
    paper = np.broadcast_to(np.array(PAPER, np.uint8), image.shape)
    faded = _blended(_grey(image), paper, _FADED)
    return np.where(_enlarged(shown[..., None].numpy(), image), cell, faded)


def marked(image: Pixels, patch: tuple[int, int], grid: Grid) -> Pixels:
    """The cell with a white frame with a dark edge around a patch."""
    cell = image.copy()
    side = image.shape[0] // grid[0]
    top, left = patch[0] * side, patch[1] * side
    for width, colour in ((4, (0, 0, 0)), (3, (255, 255, 255))):
        window = (
            slice(max(0, top - width), top + side + width),
            slice(max(0, left - width), left + side + width),
        )
        cell[window] = colour
    inside = (slice(top, top + side), slice(left, left + side))
    cell[inside] = image[inside]
    return cell


def _grey(image: Pixels) -> Pixels:
    return np.asarray(Image.fromarray(image).convert("L").convert("RGB"))


def _enlarged(patches: np.ndarray, image: Pixels) -> np.ndarray:
    side = image.shape[0] // patches.shape[0]
    return patches.repeat(side, axis=0).repeat(side, axis=1)


def _blended(below: np.ndarray, above: np.ndarray, opacity: float | np.ndarray) -> Pixels:
    mixed = below.astype(np.float32) * (1 - opacity) + above.astype(np.float32) * opacity
    return np.asarray(np.rint(mixed), dtype=np.uint8)
