"""Outlines are distances: negative inside, all within the unit disc, each of its own form."""

import itertools

import numpy as np
import pytest

from attmask.data.scenes import shapes
from attmask.data.scenes.shapes import Outline, Plane

OUTLINES = [
    shapes.square,
    shapes.disc,
    shapes.heart,
    shapes.cross,
    shapes.drop,
    shapes.flower,
    shapes.crescent,
    shapes.ring,
    shapes.star,
    shapes.triangle,
]


def plane(points: int = 201) -> tuple[Plane, Plane]:
    axis = np.linspace(-1.2, 1.2, points, dtype=np.float32)
    u, v = np.meshgrid(axis, axis)
    return u, v


@pytest.mark.parametrize("outline", OUTLINES, ids=lambda f: f.__name__)
def test_a_shape_fits_in_the_unit_disc_and_fills_a_fair_part_of_it(outline: Outline) -> None:
    u, v = plane()
    inside = outline(u, v) < 0
    assert np.hypot(u, v)[inside].max() <= 1.0 + 1e-6
    assert 0.25 < inside.sum() / (np.hypot(u, v) < 1).sum() < 0.9


@pytest.mark.parametrize("outline", OUTLINES, ids=lambda f: f.__name__)
def test_near_the_edge_the_value_is_about_a_distance(outline: Outline) -> None:
    u, v = plane()
    value = outline(u, v)
    slope = np.hypot(*np.gradient(value, np.float32(2.4 / 200)))
    near = (abs(value) < 0.05) & (np.hypot(u, v) > 0.2)
    assert 0.6 < np.median(slope[near]) < 1.6


@pytest.mark.parametrize("outline", OUTLINES, ids=lambda f: f.__name__)
def test_every_shape_but_the_crescent_is_the_same_in_a_mirror(outline: Outline) -> None:
    u, v = plane()
    same = np.allclose(outline(u, v), outline(-u, v), atol=1e-4)
    assert same == (outline is not shapes.crescent)


def test_no_two_shapes_are_alike() -> None:
    u, v = plane()
    insides = [outline(u, v) < 0 for outline in OUTLINES]
    for one, other in itertools.combinations(insides, 2):
        assert (one & other).sum() / (one | other).sum() < 0.9
