"""Rank, alignment and uniformity against their definitions and against what must be."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.metrics import geometry
from attmask.evaluation.metrics.geometry import alignment, effective_rank, uniformity


def noise(images: int, width: int, seed: int = 0) -> Tensor:
    return torch.randn(images, width, generator=torch.Generator().manual_seed(seed))


def plain_rank(features: Tensor) -> float:
    """By the definition: a singular value decomposition of the features themselves."""
    values = torch.linalg.svdvals(features.double())
    shares = (values / values.sum() + 1e-7).tolist()
    return math.exp(-sum(share * math.log(share) for share in shares))


def plain_uniformity(features: Tensor) -> float:
    points = functional.normalize(features.double(), dim=1)
    return torch.pdist(points).square().mul(-2).exp().mean().log().item()


@given(images=st.integers(1, 60), width=st.integers(1, 30), seed=st.integers(0, 1000))
def test_rank_equals_that_of_a_singular_value_decomposition(
    images: int, width: int, seed: int
) -> None:
    features = noise(images, width, seed) * torch.logspace(0, -6, width) + 3
    assert effective_rank(features) == pytest.approx(plain_rank(features), rel=1e-6)


@pytest.mark.parametrize("condition", [1e2, 1e5, 1e8, 1e12])
def test_rank_of_a_badly_conditioned_spectrum_is_exact_to_a_millionth(condition: float) -> None:
    left, right = (torch.linalg.qr(noise(n, 48, n).double()).Q for n in (500, 48))
    features = (left * torch.logspace(0, -math.log10(condition), 48).double()) @ right.T
    assert effective_rank(features) == pytest.approx(plain_rank(features), rel=1e-6)


@pytest.mark.parametrize("directions", [1, 3, 16])
def test_equal_singular_values_give_their_number(directions: int) -> None:
    features = torch.eye(16)[:directions].repeat(5, 1)
    assert effective_rank(features) == pytest.approx(directions, rel=1e-4)


def test_rank_does_not_depend_on_scale_or_order_and_never_exceeds_the_images() -> None:
    features = noise(40, 24)
    rank = effective_rank(features)
    assert effective_rank(1000 * features.flip(0)) == pytest.approx(rank, rel=1e-6)
    assert effective_rank(features[:5]) <= 5
    assert rank <= 24


def test_features_that_are_all_the_same_have_rank_one_and_all_zero_rank_none() -> None:
    assert effective_rank(torch.full((50, 8), 0.3)) == pytest.approx(1, abs=1e-4)
    assert effective_rank(torch.zeros(50, 8)) == 0


def test_alignment_equals_a_plain_loop() -> None:
    first, second = noise(30, 6), noise(30, 6, 1)
    distances = []
    for one, other in zip(first.double(), second.double(), strict=True):
        distances.append(float((one / one.norm() - other / other.norm()).square().sum()))
    assert alignment(first, second) == pytest.approx(sum(distances) / 30, rel=1e-6)


def test_views_that_agree_are_at_distance_zero_and_opposite_ones_at_four() -> None:
    features = noise(20, 6)
    assert alignment(features, 7 * features) == pytest.approx(0, abs=1e-10)
    assert alignment(features, -features) == pytest.approx(4, rel=1e-6)


@given(images=st.integers(2, 40), width=st.integers(1, 9), seed=st.integers(0, 1000))
def test_uniformity_equals_the_definition_over_all_pairs(
    images: int, width: int, seed: int
) -> None:
    features = noise(images, width, seed) + 1
    expected = plain_uniformity(features)
    assert uniformity(features) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_uniformity_is_zero_for_a_point_and_minus_four_on_a_wide_sphere() -> None:
    assert uniformity(torch.full((50, 8), 0.3)) == pytest.approx(0, abs=1e-6)
    assert uniformity(torch.zeros(50, 8)) == 0
    assert uniformity(torch.eye(64)) == pytest.approx(-4, rel=1e-6)
    assert uniformity(torch.tensor([[1.0, 0], [-1, 0]])) == pytest.approx(-8, rel=1e-6)


def test_uniformity_of_many_images_is_that_of_evenly_spaced_ones() -> None:
    features = noise(90, 5)
    assert uniformity(features, most=30) == pytest.approx(plain_uniformity(features[::3]), rel=1e-5)


def test_pieces_do_not_change_the_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    features, views = noise(50, 7), noise(50, 7, 1)
    whole = effective_rank(features), alignment(features, views), uniformity(features)
    monkeypatch.setattr(geometry, "_ROWS_AT_ONCE", 8)
    monkeypatch.setattr(geometry, "_PAIRS_AT_ONCE", 50 * 3)
    pieces = effective_rank(features), alignment(features, views), uniformity(features)
    assert pieces == pytest.approx(whole, rel=1e-6)


def test_what_cannot_be_measured_is_refused() -> None:
    broken = noise(5, 3)
    broken[2, 1] = torch.inf
    for measure in (effective_rank, uniformity, lambda f: alignment(f, f)):
        with pytest.raises(UserError, match="not finite; the run diverged"):
            measure(broken)
        with pytest.raises(UserError, match="at least one image"):
            measure(torch.ones(0, 3))
    with pytest.raises(UserError, match="there is 1 image; give two or more"):
        uniformity(noise(1, 3))
