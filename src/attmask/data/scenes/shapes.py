"""Outlines of the synthetic objects: negative inside, positive outside, zero on the edge.

An outline is a function of the object's own coordinates (u to the right, v up), in which every
shape fits in a disc of radius one. Near the edge the value is about the distance to it, which is
what antialiasing needs.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float32

Plane = Float32[np.ndarray, "rows columns"]
Outline = Callable[[Plane, Plane], Plane]


def square(u: Plane, v: Plane) -> Plane:
    """A square that stands on its side."""
    return np.asarray(np.maximum(abs(u), abs(v)) - np.float32(0.68))


def disc(u: Plane, v: Plane) -> Plane:
    """A full disc."""
    return np.asarray(np.hypot(u, v) - np.float32(0.8))


def heart(u: Plane, v: Plane) -> Plane:
    """A square on its corner with a half disc on each upper side."""
    side, slant = np.float32(0.54), np.float32(np.sqrt(0.5))
    right, left = (v + 0.17 + u) * slant, (v + 0.17 - u) * slant
    body = np.maximum(abs(right), abs(left)) - side
    lobes = np.minimum(np.hypot(right - side, left), np.hypot(right, left - side)) - side
    return np.asarray(np.minimum(body, lobes))


def cross(u: Plane, v: Plane) -> Plane:
    """Two bars of equal length across each other."""
    long, thick = np.float32(0.92), np.float32(0.36)
    flat = np.maximum(abs(u) - long, abs(v) - thick)
    upright = np.maximum(abs(u) - thick, abs(v) - long)
    return np.asarray(np.minimum(flat, upright))


def drop(u: Plane, v: Plane) -> Plane:
    """A disc that runs out into a tip at the top."""
    tip, centre, radius = 0.98, -0.32, 0.65
    sine = radius / (tip - centre)
    cosine = float(np.sqrt(1 - sine**2))
    cone = abs(u) * np.float32(cosine) - (tip - v) * np.float32(sine)
    tangent = np.float32(centre + radius * sine)
    bulb = np.hypot(u, v - np.float32(centre)) - np.float32(radius)
    return np.asarray(np.minimum(bulb, np.maximum(cone, tangent - v)))


def flower(u: Plane, v: Plane) -> Plane:
    """Six round petals around a centre."""
    return np.asarray(
        np.hypot(u, v) - (np.float32(0.76) + np.float32(0.2) * np.cos(6 * np.arctan2(v, u)))
    )


def crescent(u: Plane, v: Plane) -> Plane:
    """A disc from which another, to the right, was bitten off."""
    bite = np.float32(0.62) - np.hypot(u - np.float32(0.52), v)
    return np.asarray(np.maximum(np.hypot(u, v) - np.float32(0.96), bite))


def ring(u: Plane, v: Plane) -> Plane:
    """A disc with a hole through which the background is seen."""
    radius = np.hypot(u, v)
    return np.asarray(np.maximum(radius - np.float32(0.94), np.float32(0.36) - radius))


def star(u: Plane, v: Plane) -> Plane:
    """A star of five points, one of them up."""
    outer, inner, half = 1.0, 0.52, np.pi / 5
    angle = np.arctan2(u, v)
    folded = abs(np.mod(angle + half, 2 * half) - half).astype(np.float32)
    radius = np.hypot(u, v)
    across = np.array([inner * np.sin(half), outer - inner * np.cos(half)], dtype=np.float32)
    across /= np.linalg.norm(across)
    along = radius * np.cos(folded) - np.float32(outer)
    return np.asarray(along * across[0] + radius * np.sin(folded) * across[1])


def triangle(u: Plane, v: Plane) -> Plane:
    """A triangle of equal sides that stands on one of them."""
    slanted = abs(u) * np.float32(np.sqrt(0.75)) + v * np.float32(0.5)
    return np.asarray(np.maximum(slanted, -v) - np.float32(0.5))
