"""Colours that also hold in grey and for colour-blind readers."""

from functools import cache
from itertools import product

import torch
from jaxtyping import Float, Float64, UInt8
from torch import Tensor

Colour = tuple[int, int, int]

PAPER, INK = (250, 250, 248), (40, 40, 44)
HIDDEN, HIDDEN_OUTLINE = (58, 58, 64), (82, 82, 90)

# From dark indigo over rose to pale yellow, with evenly increasing lightness (OKLab), so equal
# differences of attention look equal, also in grey and to the colour-blind.
_COLOUR_MAP = (
    (14, 14, 39),
    (51, 21, 82),
    (102, 20, 109),
    (159, 17, 111),
    (211, 39, 91),
    (247, 86, 57),
    (255, 142, 35),
    (255, 197, 88),
    (255, 244, 165),
)
_HEAD_COLOURS = (
    (86, 180, 233),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (240, 228, 66),
    (213, 94, 0),
)
# OKLab (Ottosson 2020): linear sRGB to cone responses, and their cube roots to L, a, b.
_TO_LMS = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
_TO_LAB = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)
# Linear sRGB as seen without the long or the middle cones (Machado et al. 2009, severity 1).
_PROTAN = (
    (0.152286, 1.052583, -0.204868),
    (0.114503, 0.786281, 0.099216),
    (-0.003882, -0.048116, 1.051998),
)
_DEUTAN = (
    (0.367322, 0.860646, -0.227968),
    (0.280085, 0.672501, 0.047413),
    (-0.011820, 0.042940, 0.968881),
)
_CANDIDATES = (0, 51, 102, 153, 204, 255)  # levels of each channel
_LIGHTNESS = (0.4, 0.97)  # darker colours are lost on the darkened image
_LIGHTNESS_OF_SCORES, _CHROMA_OF_SCORES = (0.32, 0.94), 0.14


def colours(values: Float[Tensor, "rows cols"]) -> UInt8[Tensor, "rows cols 3"]:
    """Map values from 0 to 1 to colours by linear interpolation of the colour map."""
    table = torch.tensor(_COLOUR_MAP, dtype=torch.float32)
    position = values.float().clamp(0, 1) * (len(table) - 1)
    low = position.floor().long().clamp(max=len(table) - 2)
    share = (position - low)[..., None]
    return (table[low] * (1 - share) + table[low + 1] * share).round().to(torch.uint8)


@cache
def head_colours(heads: int) -> tuple[Colour, ...]:
    """A colour for each head: six fixed ones, then always the one that is farthest from all before.

    The distance of two colours is the smallest that readers with full, protan or deutan vision see.
    """
    chosen = list(_HEAD_COLOURS[:heads])
    pool = torch.tensor(list(product(_CANDIDATES, repeat=3)), dtype=torch.uint8)
    lightness = oklab(pool)[:, 0]
    pool = pool[(lightness > _LIGHTNESS[0]) & (lightness < _LIGHTNESS[1])]
    while len(chosen) < heads:
        apart = seen_distance(pool, torch.tensor(chosen, dtype=torch.uint8)).amin(dim=1)
        red, green, blue = pool[int(apart.argmax())].tolist()
        chosen.append((red, green, blue))
    return tuple(chosen)


def seen_distance(
    first: UInt8[Tensor, "m 3"], second: UInt8[Tensor, "n 3"]
) -> Float64[Tensor, "m n"]:
    """The distance of colours in OKLab, the smallest of full, protan and deutan vision."""
    distances = []
    for matrix in (None, _PROTAN, _DEUTAN):
        seen = [_lab(_as_seen(_linear(some), matrix)) for some in (first, second)]
        distances.append(torch.cdist(seen[0], seen[1]))
    return torch.stack(distances).amin(dim=0)


def oklab(rgb: UInt8[Tensor, "m 3"]) -> Float64[Tensor, "m 3"]:
    """Perceived lightness, green to red, and blue to yellow."""
    return _lab(_linear(rgb))


def score_colours(scores: Float[Tensor, "M 3"]) -> UInt8[Tensor, "M 3"]:
    """Colours of three scores from -1 to 1: the first is the lightness, the second goes from blue
    to yellow, which the colour-blind tell apart as well, the third from green to red."""
    low, high = _LIGHTNESS_OF_SCORES
    first, second, third = scores.double().clamp(-1, 1).unbind(dim=1)
    lightness = low + (high - low) * (first + 1) / 2
    # Dark and light colours have less room for chroma.
    room = _CHROMA_OF_SCORES * (1 - 0.55 * first.abs())
    lab = torch.stack([lightness, third * room, second * room], dim=1)
    to_lms, to_lab = (torch.tensor(m, dtype=torch.float64) for m in (_TO_LMS, _TO_LAB))
    linear = ((lab @ to_lab.inverse().T) ** 3) @ to_lms.inverse().T
    linear = linear.clamp(0, 1)
    encoded = torch.where(linear <= 0.0031308, linear * 12.92, 1.055 * linear ** (1 / 2.4) - 0.055)
    return (encoded * 255).round().to(torch.uint8)


def _linear(rgb: UInt8[Tensor, "m 3"]) -> Float64[Tensor, "m 3"]:
    value = rgb.double() / 255
    return torch.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def _as_seen(
    linear: Float64[Tensor, "m 3"], matrix: tuple[tuple[float, ...], ...] | None
) -> Float64[Tensor, "m 3"]:
    if matrix is None:
        return linear
    return (linear @ torch.tensor(matrix, dtype=torch.float64).T).clamp(0, 1)


def _lab(linear: Float64[Tensor, "m 3"]) -> Float64[Tensor, "m 3"]:
    to_lms, to_lab = (torch.tensor(m, dtype=torch.float64) for m in (_TO_LMS, _TO_LAB))
    return ((linear @ to_lms.T) ** (1 / 3)) @ to_lab.T
