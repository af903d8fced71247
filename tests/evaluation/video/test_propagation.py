import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.video.propagation import (
    Propagation,
    Tracker,
    labels_of_patches,
    mask_of_labels,
)


def frames(count: int, height: int, width: int, *, seed: int = 0, channels: int = 6) -> Tensor:
    """Features of similar frames, in double precision."""
    draw = torch.Generator().manual_seed(seed)
    scene = torch.randn(1, channels, height, width, generator=draw, dtype=torch.float64)
    noise = torch.randn(count, channels, height, width, generator=draw, dtype=torch.float64)
    return scene + 0.5 * noise


def soft_labels(count: int, height: int, width: int, classes: int = 3) -> Tensor:
    draw = torch.Generator().manual_seed(7)
    logits = torch.randn(count, height, width, classes, generator=draw, dtype=torch.float64)
    return logits.softmax(dim=-1)


def slow(propagation: Propagation, query: Tensor, keys: Tensor, labels: Tensor) -> Tensor:
    """One patch after the other: sort all affinities of its window, keep those that are not below
    the k-th, and average their labels."""
    count, height, width, _ = keys.shape
    result = torch.zeros(height, width, labels.shape[-1], dtype=torch.float64)
    for row in range(height):
        for col in range(width):
            found: list[tuple[float, Tensor]] = []
            for frame in range(count):
                for r in range(height):
                    for c in range(width):
                        apart = max(abs(r - row), abs(c - col))
                        if propagation.radius and apart > propagation.radius:
                            continue
                        cosine = float(query[row, col] @ keys[frame, r, c])
                        affinity = math.exp(cosine / propagation.temperature)
                        found.append((affinity, labels[frame, r, c]))
            ranked = sorted((affinity for affinity, _ in found), reverse=True)
            least = ranked[min(propagation.top_k, len(ranked)) - 1]
            kept = [(affinity, label) for affinity, label in found if affinity >= least]
            total = sum(affinity for affinity, _ in kept)
            for affinity, label in kept:
                result[row, col] += affinity / total * label
    return result


def unit(features: Tensor) -> Tensor:
    return functional.normalize(features.movedim(-3, -1), dim=-1)


@pytest.mark.parametrize(
    ("size", "propagation"),
    [
        ((5, 6), Propagation(radius=2, top_k=3)),
        ((4, 9), Propagation(radius=0, top_k=5)),
        ((11, 10), Propagation(radius=3, top_k=5, temperature=0.05)),  # four tiles
        ((3, 3), Propagation(radius=1, top_k=40)),  # more than there are
        ((2, 17), Propagation(radius=12, top_k=1)),
    ],
)
def test_labels_equal_those_of_a_slow_plain_version(
    size: tuple[int, int], propagation: Propagation
) -> None:
    features, labels = unit(frames(3, *size)), soft_labels(2, *size)
    found = propagation(features[2], features[:2], labels)
    assert torch.allclose(found, slow(propagation, features[2], features[:2], labels), atol=1e-12)
    assert torch.allclose(found.sum(dim=-1), torch.ones(size, dtype=torch.float64))


def test_all_patches_that_tie_for_the_last_place_are_kept() -> None:
    one = unit(frames(1, 4, 4))
    keys = one.expand(4, -1, -1, -1)  # four copies of the query's own frame
    labels = soft_labels(4, 4, 4)
    found = Propagation(radius=0, top_k=2)(one[0], keys, labels)
    assert torch.allclose(found, labels.mean(dim=0))  # the mean of all four, not of two


def test_a_temperature_that_would_overflow_gives_the_label_of_the_nearest_patch() -> None:
    features, labels = unit(frames(2, 4, 4)), soft_labels(1, 4, 4)
    cold = Propagation(radius=0, top_k=5, temperature=1e-4)
    nearest = Propagation(radius=0, top_k=1)
    expected = nearest(features[1], features[:1], labels)
    assert torch.allclose(cold(features[1], features[:1], labels), expected, atol=1e-6)


def test_what_is_outside_of_the_window_does_not_matter() -> None:
    features, labels = unit(frames(2, 9, 20)), soft_labels(1, 9, 20)
    changed = labels.clone()
    changed[:, :, 10:] = 0
    found, other = (
        Propagation(radius=3)(features[1], features[:1], given) for given in (labels, changed)
    )
    assert torch.equal(found[:, :7], other[:, :7])
    assert not torch.equal(found[:, 7:10], other[:, 7:10])


@pytest.mark.parametrize("context_frames", [0, 1, 3])
def test_the_context_is_the_first_frame_and_the_last_few(context_frames: int) -> None:
    features = frames(8, 4, 5)
    first = soft_labels(1, 4, 5)[0]
    propagation = Propagation(context_frames=context_frames, radius=2)
    tracker = Tracker(propagation, features[0], first)
    known = [(unit(features[0]), first)]
    for frame in features[1:]:
        last = known[1:][-context_frames:] if context_frames else []
        used = [known[0], *last]
        expected = propagation(
            unit(frame), torch.stack([f for f, _ in used]), torch.stack([s for _, s in used])
        )
        found = tracker.follow(frame)
        assert torch.allclose(found, expected, atol=1e-12)
        known.append((unit(frame), found))


def test_a_mask_becomes_the_labels_of_its_nearest_pixels() -> None:
    mask = np.zeros((8, 12), dtype=np.uint8)
    mask[:4, :6] = 2
    labels = labels_of_patches(mask, (2, 4), 3)
    assert labels.argmax(dim=-1).tolist() == [[2, 2, 0, 0], [0, 0, 0, 0]]
    assert (labels.sum(dim=-1) == 1).all()


def test_each_class_is_scaled_to_its_own_range_before_the_largest_is_taken() -> None:
    weak = torch.zeros(2, 4, 2)
    weak[..., 1] = torch.tensor([0.0, 0.0, 0.1, 0.3])  # the object never reaches one half
    weak[..., 0] = 1 - weak[..., 1]
    assert mask_of_labels(weak, 4, (8, 16))[:, -1].tolist() == [1] * 8
    assert mask_of_labels(weak, 4, (8, 16))[:, 0].tolist() == [0] * 8


def test_a_class_that_fills_the_frame_wins_and_one_that_is_gone_does_not() -> None:
    labels = functional.one_hot(torch.full((3, 4), 1), 3).float()
    assert (mask_of_labels(labels, 8, (20, 30)) == 1).all()


def test_a_mask_has_the_size_of_the_frame() -> None:
    assert mask_of_labels(soft_labels(1, 3, 5)[0].float(), 16, (50, 85)).shape == (50, 85)
