"""Textures of the synthetic objects: which of the object's two tones is seen where.

A texture is a smooth function of the object's own coordinates, positive where the first tone is
and negative where the second is. `Weave` carries what differs between two objects of a class.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

Plane = Float32[np.ndarray, "rows columns"]


@dataclass(frozen=True)
class Weave:
    """How one object wears its texture: periods per object radius, offsets, and free angles."""

    frequency: float
    offset: tuple[float, float]
    angles: Float32[np.ndarray, "waves 2"]

    def phases(self, u: Plane, v: Plane, scale: float = 1.0) -> tuple[Plane, Plane]:
        """The coordinates counted in periods of `scale` times the frequency."""
        rate = np.float32(self.frequency * scale)
        return u * rate + np.float32(self.offset[0]), v * rate + np.float32(self.offset[1])


Texture = Callable[[Plane, Plane, Weave], Plane]
_TURN = np.float32(2 * np.pi)


def bricks(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Rows of bricks, each shifted by half a brick, with mortar between."""
    across, up = weave.phases(u, v)
    row = np.floor(up)
    across = across * np.float32(0.55) + row * np.float32(0.5)
    to_side = np.float32(0.5) - abs(across - np.floor(across) - np.float32(0.5))
    to_row = np.float32(0.5) - abs(up - row - np.float32(0.5))
    return np.asarray((np.minimum(to_side / np.float32(0.55), to_row) - np.float32(0.17)) * 4)


def checks(u: Plane, v: Plane, weave: Weave) -> Plane:
    """A chess board."""
    across, up = weave.phases(u, v, 0.75)
    return np.sin(_TURN * across) * np.sin(_TURN * up) * 2


def dots(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Round dots on a triangular lattice."""
    across, up = weave.phases(u, v)
    lean = np.float32(np.sqrt(0.75)) * across
    half = np.float32(0.5) * up
    waves = np.cos(_TURN * up) + np.cos(_TURN * (lean + half)) + np.cos(_TURN * (lean - half))
    return np.asarray(waves - np.float32(0.35))


def hatching(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Thin slanting lines that cross."""
    across, up = weave.phases(u, v, 0.7)
    lines = np.maximum(np.cos(_TURN * (across + up)), np.cos(_TURN * (across - up)))
    return np.asarray((lines - np.float32(0.7)) * 2)


def marble(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Irregular blotches without a direction."""
    total = np.zeros_like(u)
    for direction, phase in weave.angles:
        rate = np.float32(_TURN * weave.frequency * 0.8)
        total += np.cos(rate * (np.cos(direction) * u + np.sin(direction) * v) + phase)
    return total * np.float32(1.4 / np.sqrt(len(weave.angles)))


def rings(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Circles around the object's centre."""
    return np.asarray(
        np.sin(_TURN * (np.float32(weave.frequency) * np.hypot(u, v) + np.float32(0.1)))
    )


def scales(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Rows of arcs like the scales of a fish."""
    across, up = weave.phases(u, v, 0.8)
    row = np.floor(up)
    across = across * np.float32(0.8) + row * np.float32(0.5)
    sideways = (across - np.floor(across) - np.float32(0.5)) * np.float32(1.25)
    return np.asarray(np.cos(_TURN * np.float32(1.5) * np.hypot(sideways, up - row)))


def spokes(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Wedges that run out from the object's centre."""
    return np.asarray(np.sin(8 * np.arctan2(v, u) + _TURN * np.float32(weave.offset[0])))


def stripes(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Straight parallel stripes."""
    across, _ = weave.phases(u, v)
    return np.sin(_TURN * across)


def zigzags(u: Plane, v: Plane, weave: Weave) -> Plane:
    """Stripes that turn sharply to and fro."""
    across, up = weave.phases(u, v)
    bend = across * np.float32(0.8)
    bend = abs(bend - np.floor(bend) - np.float32(0.5)) * np.float32(1.7)
    return np.asarray(np.sin(_TURN * (up + bend)))
