"""Backgrounds are muted, cluttered, and one like the other."""

import numpy as np

from attmask.data.scenes.backdrop import backdrop


def many(count: int = 40, size: int = 48) -> np.ndarray:
    return np.stack([backdrop(np.random.default_rng(seed), size) for seed in range(count)])


def test_a_backdrop_is_dull_and_within_the_range_of_an_image() -> None:
    pictures = many()
    assert pictures.min() > 0.05
    assert pictures.max() < 0.95
    assert (pictures.max(axis=-1) - pictures.min(axis=-1)).mean() < 0.12


def test_a_backdrop_is_cluttered() -> None:
    pictures = many().mean(axis=-1)
    assert (pictures.std(axis=(1, 2)) > 0.03).all()


def test_backdrops_hardly_differ_in_mean_colour() -> None:
    means = many().mean(axis=(1, 2))
    assert means.std(axis=0).max() < 0.04


def test_a_backdrop_is_the_same_picture_at_every_size() -> None:
    small = backdrop(np.random.default_rng(3), 32)
    large = backdrop(np.random.default_rng(3), 128).reshape(32, 4, 32, 4, 3).mean(axis=(1, 3))
    assert np.corrcoef(small.ravel(), large.ravel())[0, 1] > 0.9
    assert not np.allclose(small, backdrop(np.random.default_rng(4), 32), atol=0.02)
