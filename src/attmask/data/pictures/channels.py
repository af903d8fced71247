"""Convert the channels of a picture to the requested ones."""

from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Shaped, UInt8

from attmask.data.pictures.depth import UnfitError, to_8_bits

GREY, COLOUR = 1, 3


@dataclass(frozen=True)
class Samples:
    """The decoded values of a picture; with `alpha`, the last channel is transparency."""

    values: Shaped[np.ndarray, "H W C"]
    alpha: bool = False


def in_channels(samples: Samples, channels: int, bits: int | None) -> UInt8[np.ndarray, "H W n"]:
    """8-bit pixels of `channels` channels.

    Grey and colour pictures turn into one another, transparent ones lie on white, as a viewer
    shows them. For any other number the first channels are taken as they are.
    """
    values, found = samples.values, samples.values.shape[2]
    if channels not in (GREY, COLOUR):
        return _first(_bytes_with_alpha(samples, bits), channels)
    if samples.alpha:
        pixels = _on_white(_bytes_with_alpha(samples, bits))
    else:
        pixels = to_8_bits(values[:, :, :COLOUR] if found > COLOUR else values, bits)
    found = pixels.shape[2]
    if found == GREY and channels == COLOUR:
        return np.repeat(pixels, COLOUR, axis=2)
    if found == COLOUR and channels == GREY:
        return cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGB2GRAY)[:, :, None]
    return _first(pixels, channels)


def _first(pixels: UInt8[np.ndarray, "H W C"], channels: int) -> UInt8[np.ndarray, "H W n"]:
    found = pixels.shape[2]
    if found < channels:
        raise UnfitError(f"has {found} channels, {channels} are wanted")
    return np.ascontiguousarray(pixels[:, :, :channels])


def _bytes_with_alpha(samples: Samples, bits: int | None) -> UInt8[np.ndarray, "H W C"]:
    """All channels in 8 bits; transparency always has the full depth of its type."""
    values = samples.values
    if not samples.alpha or values.dtype != np.uint16:
        return to_8_bits(values, bits)
    return np.concatenate(
        [to_8_bits(values[:, :, :-1], bits), to_8_bits(values[:, :, -1:], 16)], axis=2
    )


def _on_white(pixels: UInt8[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "H W c"]:
    """Composite transparent pixels over white."""
    seen, alpha = pixels[:, :, :-1], pixels[:, :, -1:]
    if alpha.min() == 255:
        return seen
    # 255 - (255 - seen) alpha / 255, rounded: the division by 255 in 16 bits.
    dark = (255 - seen).astype(np.uint16) * alpha + np.uint16(128)
    return np.asarray(255 - ((dark + (dark >> 8)) >> 8).astype(np.uint8))
