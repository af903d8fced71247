import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.metrics import whitening
from attmask.evaluation.metrics.whitening import learn_whitening


def stretched(images: int = 300, width: int = 6, seed: int = 0) -> Tensor:
    """Vectors that vary much more along some directions than along others."""
    draw = torch.Generator().manual_seed(seed)
    mixed = torch.randn(width, width, generator=draw)
    return 5 + torch.randn(images, width, generator=draw) @ (mixed * torch.logspace(0, -1, width))


def test_whitened_vectors_have_no_main_direction() -> None:
    vectors = stretched()
    learned = learn_whitening(vectors)
    unit = functional.normalize(vectors.double(), dim=1)
    white = (unit - learned.centre) @ learned.directions
    spread = white.T @ white / len(white)
    torch.testing.assert_close(spread, torch.eye(6, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("width", [None, 3])
def test_similarities_equal_those_of_scikit_learn_s_whitening(width: int | None) -> None:
    vectors, queries = stretched(), stretched(20, seed=1)
    unit, asked = (functional.normalize(v.double(), dim=1).numpy() for v in (vectors, queries))
    # Two sets in one space: directions may be turned over, similarities may not.
    judge = PCA(width, whiten=True, svd_solver="full").fit(unit)
    expected = [judge.transform(rows) for rows in (unit, asked)]
    expected = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in expected]
    learned = learn_whitening(vectors, width)
    ours = learned(queries) @ learned(vectors).T
    torch.testing.assert_close(ours.double(), torch.from_numpy(expected[1] @ expected[0].T))


def test_results_have_length_one_and_the_length_of_a_vector_does_not_matter() -> None:
    vectors = stretched()
    learned = learn_whitening(vectors)
    torch.testing.assert_close(learned(vectors).norm(dim=1), torch.ones(300))
    torch.testing.assert_close(learned(7 * vectors), learned(vectors))


def test_pieces_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = stretched()
    whole = learn_whitening(vectors)(vectors)
    monkeypatch.setattr(whitening, "_ROWS_AT_ONCE", 7)
    torch.testing.assert_close(learn_whitening(vectors)(vectors), whole)


def test_directions_without_variance_are_left_out() -> None:
    few = learn_whitening(stretched(4))
    assert few.directions.shape == (6, 3)  # four points span three directions
    flat = stretched()
    flat[:, 5] = flat[:, 4]
    assert learn_whitening(flat).directions.shape == (6, 5)
    assert bool(few(stretched(9)).isfinite().all())


@pytest.mark.parametrize("images", [1, 5])
def test_equal_vectors_are_refused(images: int) -> None:
    with pytest.raises(UserError, match="all equal; use more images"):
        learn_whitening(torch.ones(images, 4))
