import numpy as np
import torch
from sklearn.decomposition import PCA

from attmask.visualization.projection import aligned, foreground, project


def _patches(seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(60, 8, generator=draw) * torch.tensor([9.0, 5, 3, 1, 1, 1, 1, 1])


def test_the_same_patches_in_another_order_keep_their_signs() -> None:
    patches, order = _patches(), torch.randperm(60, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(project(patches[order]).scores, project(patches).scores[order])


def test_small_changes_do_not_turn_a_component() -> None:
    first, second = project(_patches()), project(_patches() + 1e-3 * _patches(1))
    assert (first.scores - second.scores).abs().max() < 0.05


def test_the_foreground_is_the_more_attended_side() -> None:
    patches = _patches()
    side = project(patches).scores[:, 0] > 0
    assert torch.equal(foreground(patches, side.float()), side)
    assert torch.equal(foreground(patches, (~side).float()), ~side)


def test_a_rotated_projection_is_turned_back() -> None:
    fixed = project(_patches())
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))[0]
    moved = type(fixed)(fixed.scores @ turn)
    assert torch.allclose(aligned(moved, fixed).scores, fixed.scores)


def test_the_scores_are_those_of_scikit_learn_up_to_the_sign() -> None:
    patches = _patches()
    scores = PCA(3, whiten=True, svd_solver="full").fit_transform(patches.double().numpy())
    ours = project(patches).scores.numpy()
    ours = ours * np.sqrt((len(ours) - 1) / len(ours))  # whitening divides by n - 1
    np.testing.assert_allclose(np.abs(ours), np.abs(scores), atol=1e-9)


def test_patches_without_three_directions_have_scores_of_zero() -> None:
    line = torch.arange(10.0)[:, None] * torch.ones(1, 5)
    scores = project(line).scores
    assert scores[:, 0].std() > 0.9
    assert (scores[:, 1:] == 0).all()
    alike = project(torch.ones(4, 5)).scores
    assert (alike == 0).all()
    assert foreground(torch.ones(4, 5), torch.rand(4)).all()
