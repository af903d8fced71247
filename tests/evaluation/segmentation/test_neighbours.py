import pytest
import torch
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.segmentation.neighbours import PatchBank, bank_of, patches_per_image


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_votes_are_the_weighted_mean_of_the_shares_of_the_nearest() -> None:
    bank = PatchBank(random(50, 6, seed=0), random(50, 3, seed=1).softmax(dim=1))
    queries = random(9, 6, seed=2)
    votes = bank.votes(queries, k=4, temperature=0.1)
    cosine = functional.normalize(queries) @ functional.normalize(bank.vectors).T
    for query in range(9):
        near = cosine[query].argsort(descending=True)[:4]
        weights = (cosine[query, near] / 0.1).exp()
        wanted = (weights[:, None] * bank.shares[near]).sum(dim=0) / weights.sum()
        assert votes[query].tolist() == pytest.approx(wanted.tolist(), abs=1e-5)


def test_all_patches_vote_where_there_are_fewer_than_k() -> None:
    bank = PatchBank(random(2, 4, seed=0), torch.eye(2))
    votes = bank.votes(random(3, 4, seed=1), k=20, temperature=0.07)
    assert votes.sum(dim=1).tolist() == pytest.approx([1, 1, 1])


def test_a_bank_has_labelled_patches_alone_drawn_alike_every_time() -> None:
    vectors, shares = random(20, 3, seed=0), torch.eye(4)[torch.arange(20) % 4]
    shares[::2] = 0
    every = bank_of(vectors, shares, most=20, image=0, seed=0)
    assert torch.equal(every.vectors, vectors[1::2])
    some = [bank_of(vectors, shares, most=4, image=image, seed=0).vectors for image in (0, 0, 1)]
    assert torch.equal(some[0], some[1])
    assert not torch.equal(some[0], some[2]), "each image has its own draw"
    assert {tuple(row) for row in some[0].tolist()} <= {tuple(row) for row in vectors.tolist()}
    assert len(some[0]) == 4


def test_joined_banks_keep_their_order_and_none_is_empty() -> None:
    parts = [PatchBank(random(2, 3, seed=n), torch.eye(2)) for n in range(2)]
    assert torch.equal(PatchBank.joined(parts, 3, 2).vectors[2:], parts[1].vectors)
    assert len(PatchBank.joined([], 3, 2)) == 0


def test_a_bank_takes_at_least_one_patch_of_each_image() -> None:
    assert patches_per_image(30, 100) == 3
    with pytest.raises(UserError, match="a bank of 29 patches is too small for 30 training images"):
        patches_per_image(30, 29)
