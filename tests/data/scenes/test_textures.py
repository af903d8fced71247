"""Textures show both tones, move with their offset, and no two are alike."""

import itertools

import numpy as np
import pytest

from attmask.data.scenes import textures
from attmask.data.scenes.textures import Plane, Texture, Weave

TEXTURES = [
    textures.bricks,
    textures.checks,
    textures.dots,
    textures.hatching,
    textures.marble,
    textures.rings,
    textures.scales,
    textures.spokes,
    textures.stripes,
    textures.zigzags,
]
ANGLES = np.array([[0.3, 1.0], [1.4, 2.0], [2.2, 0.5], [2.9, 4.0]], dtype=np.float32)
WEAVE = Weave(frequency=2.0, offset=(0.2, 0.6), angles=ANGLES)


def plane() -> tuple[Plane, Plane]:
    axis = np.linspace(-1, 1, 161, dtype=np.float32)
    u, v = np.meshgrid(axis, axis)
    return u, v


@pytest.mark.parametrize("texture", TEXTURES, ids=lambda f: f.__name__)
def test_both_tones_are_seen(texture: Texture) -> None:
    first = (texture(*plane(), WEAVE) > 0).mean()
    assert 0.2 < first < 0.8


@pytest.mark.parametrize(
    "texture",
    [textures.bricks, textures.checks, textures.dots, textures.hatching, textures.scales],
    ids=lambda f: f.__name__,
)
def test_a_lattice_moves_with_its_offset(texture: Texture) -> None:
    moved = Weave(frequency=2.0, offset=(0.7, 0.6), angles=ANGLES)
    assert not np.allclose(texture(*plane(), WEAVE), texture(*plane(), moved), atol=0.1)


def test_stripes_repeat_after_a_period_of_their_frequency() -> None:
    u, v = plane()
    period = np.float32(1 / WEAVE.frequency)
    assert np.allclose(
        textures.stripes(u, v, WEAVE), textures.stripes(u + period, v, WEAVE), atol=1e-4
    )


def test_rings_and_spokes_turn_around_the_centre() -> None:
    u, v = plane()
    assert np.allclose(textures.rings(u, v, WEAVE), textures.rings(v, -u, WEAVE), atol=1e-4)
    assert np.allclose(textures.spokes(u, v, WEAVE), textures.spokes(v, -u, WEAVE), atol=1e-2)


def test_no_two_textures_are_alike() -> None:
    seen = [texture(*plane(), WEAVE).ravel() for texture in TEXTURES]
    for one, other in itertools.combinations(seen, 2):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.6
