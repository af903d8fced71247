import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.metrics import neighbours
from attmask.evaluation.metrics.neighbours import nearest


def random_vectors(count: int, width: int, seed: int) -> Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def found(
    bank: Tensor, queries: Tensor, k: int, *, exclude_self: bool = False
) -> tuple[Tensor, Tensor]:
    chunks = list(nearest(bank, queries, k, exclude_self=exclude_self))
    return torch.cat([s for s, _ in chunks]), torch.cat([i for _, i in chunks])


def plain(
    bank: Tensor, queries: Tensor, k: int, *, exclude_self: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """All cosines in double precision, and a full sort that keeps the order of equals."""
    bank, queries = (functional.normalize(v.double(), dim=1) for v in (bank, queries))
    cosine = (queries @ bank.T).numpy().round(10)  # equal vectors are equal, others far apart
    if exclude_self:
        np.fill_diagonal(cosine, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(cosine, order, axis=1), order


@settings(max_examples=60)
@given(
    images=st.integers(2, 150),
    distinct=st.integers(1, 40),
    asked=st.integers(1, 70),
    block=st.sampled_from([(16, 16), (32, 48), (64, 16), (2048, 1024)]),
    opening=st.integers(1, 4),
    itself=st.booleans(),
    data=st.data(),
)
def test_neighbours_are_those_of_a_full_sort_and_of_equals_the_first(
    images: int,
    distinct: int,
    asked: int,
    block: tuple[int, int],
    opening: int,
    itself: bool,
    data: st.DataObject,
) -> None:
    draw = np.random.default_rng(images + 1000 * distinct)
    bank = random_vectors(distinct, 6, distinct)[draw.integers(0, distinct, images)]
    queries = bank if itself else random_vectors(asked, 6, asked + 1)
    k = data.draw(st.integers(1, images - itself))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_CPU_BLOCK", block)
        patch.setattr(neighbours, "_OPENING", opening)
        similarity, index = found(bank, queries, k, exclude_self=itself)
    expected_similarity, expected_index = plain(bank, queries, k, exclude_self=itself)
    np.testing.assert_array_equal(index.numpy(), expected_index)
    np.testing.assert_allclose(similarity.numpy(), expected_similarity, atol=1e-6)


def test_copies_of_an_image_are_equally_near_wherever_they_lie_in_a_large_bank() -> None:
    bank = random_vectors(5000, 384, 0)
    copies = torch.randperm(5000, generator=torch.Generator().manual_seed(1))[:300].sort().values
    bank[copies] = bank[copies[0]].clone()
    queries = torch.cat([bank[copies[:1]], random_vectors(3, 384, 2)])
    _, index = found(bank, queries, 300)
    assert index[0].tolist() == copies.tolist()
    similarity, index = found(bank, queries, 5000)
    for row in range(4):
        of_copies = similarity[row][torch.isin(index[row], copies)]
        assert len(of_copies) == 300
        assert len(of_copies.unique()) == 1


@pytest.mark.parametrize("k", [1, 20, 200, 1500])
def test_a_bank_of_many_pieces_equals_a_full_sort(k: int) -> None:
    bank, queries = random_vectors(12_000, 32, 3), random_vectors(40, 32, 4)
    similarity, index = found(bank, queries, k)
    cosine = functional.normalize(queries) @ functional.normalize(bank).T
    ordered = cosine.sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(similarity, ordered.values[:, :k], atol=1e-6, rtol=0)
    # Where two differ by rounding alone, either may come first.
    torch.testing.assert_close(cosine.gather(1, index), ordered.values[:, :k], atol=1e-6, rtol=0)
    assert all(len(set(row)) == k for row in index.tolist())


def test_the_nearest_may_all_lie_at_the_end_of_the_bank() -> None:
    towards = torch.linspace(0, 1, 3000)[:, None]
    bank = torch.cat([1 - towards, towards], dim=1)
    _, index = found(bank, torch.tensor([[0.0, 1.0]]), 250)
    assert index[0].tolist() == list(range(2999, 2749, -1))


def test_of_a_collapsed_network_the_first_images_are_the_neighbours() -> None:
    bank = torch.full((40_000, 4), 0.3)
    similarity, index = found(bank, bank[:50], 30)
    assert (index == torch.arange(30)).all()
    torch.testing.assert_close(similarity, torch.ones(50, 30))
    _, others = found(bank[:3000], bank[:3000], 2, exclude_self=True)
    assert others[:3].tolist() == [[1, 2], [0, 2], [0, 1]]
    assert (others[3:] == torch.arange(2)).all()


def test_the_length_of_a_vector_does_not_matter_and_no_direction_is_near_nothing() -> None:
    bank = torch.tensor([[0.0, 0.0], [5.0, 0.0], [-1e-5, 0.0], [0.0, 1e6]])
    similarity, index = found(bank, torch.tensor([[1e-3, 0.0]]), 4)
    assert similarity[0].tolist() == [1.0, 0.0, 0.0, -1.0]
    assert index[0].tolist() == [1, 0, 3, 2]


def test_keys_are_in_the_order_of_similarity_and_then_of_the_lower_index() -> None:
    similarity = torch.tensor([-1.0, -0.5, -1e-30, 0.0, -0.0, 1e-30, 0.5, 1.0])
    index = torch.tensor([5, 2**31, 0, 4, 3, 9, 8, 7])  # -0 and 0 are equals
    keys = neighbours._keys(similarity, index)
    assert keys.tolist() == sorted(keys.tolist())
    opened, indices = neighbours._opened(keys)
    assert opened.tolist() == similarity.tolist()
    assert indices.tolist() == index.tolist()
    assert int(keys[0]) > neighbours._NOTHING


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_number_formats_are_compared_in_fp32(dtype: torch.dtype) -> None:
    bank = random_vectors(50, 8, 0).to(dtype)
    similarity, index = found(bank, bank[:5], 3)
    assert similarity.dtype == torch.float32
    np.testing.assert_array_equal(index.numpy(), plain(bank, bank[:5], 3)[1])


def test_bank_and_queries_stay_as_they_are() -> None:
    bank, queries = random_vectors(50, 8, 0), random_vectors(20, 8, 1)
    before = bank.clone(), queries.clone()
    found(bank, queries, 3)
    assert torch.equal(bank, before[0])
    assert torch.equal(queries, before[1])


@pytest.mark.parametrize(
    ("bank", "queries", "k", "exclude_self", "says"),
    [
        (torch.ones(3, 2), torch.ones(1, 2), 4, False, "4 neighbours of 3"),
        (torch.ones(3, 2), torch.ones(3, 2), 3, True, "3 neighbours of 2"),
        (torch.ones(3, 2), torch.ones(1, 2), 0, False, "0 neighbours"),
        (torch.ones(3, 2), torch.ones(2, 2), 1, True, "2 queries are not the 3"),
        (torch.tensor([[torch.nan, 1.0]]), torch.ones(1, 2), 1, False, "not finite"),
        (torch.ones(1, 2), torch.tensor([[torch.inf, 1.0]]), 1, False, "not finite"),
    ],
)
def test_what_has_no_neighbours_is_refused(
    bank: Tensor, queries: Tensor, k: int, exclude_self: bool, says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        found(bank, queries, k, exclude_self=exclude_self)
