"""Backgrounds of the synthetic scenes: muted, cluttered, and the same for every class.

If a background told two images apart, a network could match crops by it and learn nothing about
the object. So every background has the same dull palette and about the same amount of clutter.
"""

from functools import lru_cache

import numpy as np
from jaxtyping import Float32

_BASE = np.array([0.50, 0.475, 0.44], dtype=np.float32)
_BROWN = np.array([0.03, 0.0, -0.03], dtype=np.float32)
_ITEMS = 12
_EDGE = np.float32(0.16)  # softness of an item's edge, as a share of its half width


@lru_cache(maxsize=64)
def _interpolation(size: int, knots: int) -> Float32[np.ndarray, "size knots"]:
    """Weights that carry `knots` values smoothly to `size` pixels."""
    place = (np.arange(size) + 0.5) / size * (knots - 1)
    gap = np.clip(1 - abs(place[:, None] - np.arange(knots)), 0, 1)
    return (gap * gap * (3 - 2 * gap)).astype(np.float32)


def _noise(rng: np.random.Generator, size: int, knots: int) -> Float32[np.ndarray, "size size"]:
    """Smooth noise between -1 and 1, the same picture at every size."""
    values = (rng.random((knots, knots), dtype=np.float32) - np.float32(0.5)) * 2
    weights = _interpolation(size, knots)
    return np.asarray(weights @ values @ weights.T)


def _clutter(rng: np.random.Generator, size: int) -> Float32[np.ndarray, "size size 3"]:
    """Faint blobs and bars, some of them striped, that overlap like coloured glass."""
    x0, y0, turn, length, width, boxy, rate, phase, light, brown = rng.random(
        (10, _ITEMS), dtype=np.float32
    )[:, :, None]
    pixel = ((np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size))[None]
    cosine, sine = np.cos(turn * np.float32(np.pi)), np.sin(turn * np.float32(np.pi))
    # Both coordinates are linear in x and y: two short tables replace a full grid.
    x, y = pixel - x0, pixel - y0
    along = (x * cosine)[:, None, :] + (y * sine)[:, :, None]
    across = (y * cosine)[:, :, None] - (x * sine)[:, None, :]
    half_length, half_width = 0.10 + 0.3 * length[..., None], 0.03 + 0.12 * width[..., None]
    a, b = abs(along) / half_length, abs(across) / half_width
    distance = np.where(boxy[..., None] < 0.5, np.maximum(a, b), a * a + b * b)
    weight = np.clip((1 - distance) / _EDGE + np.float32(0.5), 0, 1)
    striped = phase[:8, :, None] < 0.6
    waves = np.cos(along[:8] * (30 + 50 * rate[:8, :, None]) + phase[:8, :, None] * 40)
    weight[:8] *= np.where(striped, waves, np.float32(1))
    tint = (light - np.float32(0.5)) * np.float32(0.24) + (brown - np.float32(0.5)) * 2 * _BROWN
    flat = weight.reshape(_ITEMS, -1).T @ tint.astype(np.float32)
    return np.asarray(flat.reshape(size, size, 3))


def backdrop(rng: np.random.Generator, size: int) -> Float32[np.ndarray, "size size 3"]:
    """A dull background with gradients, noise, blobs, bars and stripes, values about 0.2 to 0.8."""
    slope_x, slope_y, brown = rng.random(3, dtype=np.float32) - np.float32(0.5)
    ramp = (np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size) - 0.5
    light = np.float32(0.2) * (slope_x * ramp[None, :] + slope_y * ramp[:, None])
    light = light + 0.05 * _noise(rng, size, 6) + 0.06 * _noise(rng, size, 24)
    warmth = brown * np.float32(0.5) + _noise(rng, size, 5)
    return np.asarray(_BASE + light[..., None] + warmth[..., None] * _BROWN + _clutter(rng, size))
