import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.layers import Attention
from timm.models import vision_transformer as timm_vit
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attmask.mask import Mask
from attmask.models.attention import attend
from attmask.models.blocks import Block, ChosenTokens, drop_path

# Every part that timm's plain block may have.
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"qkv_bias": True},
    "without bias": {"qkv_bias": False, "proj_bias": False},
    "query and key norm": {"qkv_bias": True, "qk_norm": True},
    "layer scale": {"qkv_bias": True, "init_values": 0.1},
    "norm before the projection": {"qkv_bias": True, "scale_attn_norm": True},
    "gate": {"qkv_bias": True},
}


def block_of(kind: str = "plain") -> Block:
    torch.manual_seed(0)
    block = timm_vit.Block(24, 3, norm_layer=nn.LayerNorm, **KINDS[kind])
    if kind == "gate":  # timm has the part, but no block that asks for it
        block.attn = Attention(24, 3, qkv_bias=True, gated=True)
    for parameter in block.parameters():
        nn.init.normal_(parameter, mean=float(parameter.dim() == 1) * 0.5, std=0.3)
    return Block.adopt_(block.eval())


def attention_in(block: Block) -> Attention:
    assert isinstance(block.attn, Attention)
    return block.attn


def tokens(images: int = 3, count: int = 10) -> Tensor:
    return torch.randn(images, count, 24, generator=torch.Generator().manual_seed(1))


# --- the block


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_gives_what_timms_own_forward_gives(kind: str) -> None:
    block, x = block_of(kind), tokens()
    theirs = timm_vit.Block.forward(block, x)
    torch.testing.assert_close(block(x), theirs, rtol=1e-5, atol=1e-5)


def test_a_block_with_an_attention_mask_computes_as_timms() -> None:
    block, x = block_of(), tokens()
    assert torch.equal(block(x, is_causal=True), timm_vit.Block.forward(block, x, is_causal=True))
    assert not torch.equal(block(x, is_causal=True), block(x))


def test_an_adopted_block_keeps_timms_names_and_weights() -> None:
    theirs = timm_vit.Block(24, 3)
    before = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    ours = Block.adopt_(theirs)
    assert ours is theirs
    assert list(ours.state_dict()) == list(before)
    assert all(torch.equal(tensor, before[name]) for name, tensor in ours.state_dict().items())
    assert Block.adopt_(ours) is ours


@pytest.mark.parametrize("kind", KINDS)
def test_chosen_tokens_are_those_of_the_whole_block(kind: str) -> None:
    block, x = block_of(kind), tokens()
    wanted = torch.zeros(3, 8, dtype=torch.bool)  # two tokens come before the patches
    wanted[0, [1, 7]] = wanted[2, 0] = True
    whole = block(x)
    expected = torch.cat([whole[:, 0], whole[:, 2:][wanted]])
    chosen = block(x, chosen=ChosenTokens.cls_and(Mask.count(wanted), prefix=2))
    torch.testing.assert_close(chosen, expected, rtol=1e-5, atol=1e-5)
    alone = block(x, chosen=ChosenTokens.only_cls(3, x.device))
    torch.testing.assert_close(alone, whole[:, 0], rtol=1e-5, atol=1e-5)


@given(
    rows=st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5),
    prefix=st.integers(1, 5),
)
def test_chosen_tokens_are_cls_and_then_the_patches_image_after_image(
    rows: list[list[bool]], prefix: int
) -> None:
    chosen = ChosenTokens.cls_and(Mask.count(torch.tensor(rows)), prefix)
    patches = [(i, prefix + p) for i, row in enumerate(rows) for p, here in enumerate(row) if here]
    pairs = list(zip(chosen.image.tolist(), chosen.token.tolist(), strict=True))
    assert pairs == [*((i, 0) for i in range(len(rows))), *patches]
    assert chosen.queries.shape == (len(rows), 1 + max(map(sum, rows)))
    assert torch.equal(chosen.queries[chosen.image, chosen.slot], chosen.token)


def test_fused_attention_gives_what_plain_attention_gives() -> None:
    block, x = block_of("query and key norm"), tokens()
    fused = attend(attention_in(block), x, x)
    block = block.double()
    plain = attend(attention_in(block), x.double(), x.double())  # float64 is not fused here
    torch.testing.assert_close(fused, plain.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("fused", [True, False])
def test_a_block_fuses_attention_or_not_as_it_is_told(fused: bool) -> None:
    block, x = block_of("query and key norm"), tokens()
    itself = block(x)
    block.fused = fused
    with FlopCounterMode(display=False) as counter:
        told = block(x)
    kernels = {str(kernel) for kernel in counter.get_flop_counts()["Global"]}
    assert any("scaled_dot_product" in kernel for kernel in kernels) == fused
    torch.testing.assert_close(told, itself, rtol=1e-5, atol=1e-5)


# --- the attention row


def attention_matrix(block: Block, x: Tensor) -> Tensor:
    """softmax(q kT / sqrt(d)) of every head, written out."""
    attn, (images, count, width) = attention_in(block), x.shape
    qkv = attn.qkv(block.norm1(x)).view(images, count, 3, attn.num_heads, -1)
    q, k, _ = (part.transpose(1, 2) for part in qkv.unbind(2))
    q, k = attn.q_norm(q), attn.k_norm(k)
    logits: Tensor = q @ k.transpose(-2, -1) / math.sqrt(width // attn.num_heads)
    return logits.softmax(dim=-1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("prefix", [1, 5])
def test_cls_attention_is_the_first_row_of_the_attention_matrix(kind: str, prefix: int) -> None:
    block, x = block_of(kind), tokens()
    row = attention_matrix(block, x)[:, :, 0, prefix:]
    torch.testing.assert_close(block.cls_attention(x, prefix), row, rtol=1e-5, atol=1e-6)
    assert (row.sum(-1) < 1).all()  # not renormalised


@pytest.mark.parametrize("kind", ["plain", "query and key norm"])
def test_the_attention_row_is_in_full_precision_under_autocast(kind: str) -> None:
    block, x = block_of(kind), tokens(count=200)
    exact = block.cls_attention(x, 1)
    with torch.autocast("cpu", torch.bfloat16):
        cast = block.cls_attention(x, 1)
    assert cast.dtype == torch.float32
    assert torch.equal(cast, exact)
    assert block.cls_attention(x.bfloat16(), 1).dtype == torch.float32


# --- drop path

RATES = np.linspace(0, 0.4, 5)


def draws(
    images: int, first: int = 0, *, seed: int = 0, step: int = 0, view: int = 0
) -> np.ndarray:
    image = np.arange(first, first + images)
    return drop_path(RATES, seed=seed, step=step, images=image, views=np.full_like(image, view))


def test_a_branch_is_dropped_with_its_rate_and_scaled_up_otherwise() -> None:
    images = 4000
    keep = draws(images)
    assert keep.shape == (5, 2, images)
    for rate, branches in zip(RATES.tolist(), keep, strict=True):
        assert set(np.unique(branches).tolist()) <= {0.0, 1 / (1 - rate)}
        for branch in branches:
            dropped = (branch == 0).mean()
            assert abs(dropped - rate) <= 4 * math.sqrt(rate * (1 - rate) / images)


def test_branches_blocks_and_images_are_dropped_independently() -> None:
    dropped = (draws(4000)[1:] == 0).reshape(8, 4000)
    together = np.corrcoef(np.concatenate([dropped, np.roll(dropped, 1, axis=1)]))
    apart = ~np.eye(len(together), dtype=bool)
    assert abs(together[apart]).max() < 4.5 / math.sqrt(4000)


@given(cut=st.integers(0, 20), seed=st.integers(0, 100), step=st.integers(0, 10**6))
def test_drop_path_does_not_depend_on_how_the_batch_is_split(
    cut: int, seed: int, step: int
) -> None:
    whole = draws(20, seed=seed, step=step)
    head = draws(cut, seed=seed, step=step)
    tail = draws(20 - cut, cut, seed=seed, step=step)
    assert np.array_equal(whole, np.concatenate([head, tail], axis=-1))


def test_another_seed_step_or_view_drops_others() -> None:
    several = [draws(50), draws(50, seed=1), draws(50, step=1), draws(50, view=1)]
    assert len({tuple(d.flatten().tolist()) for d in several}) == 4


def test_a_block_whose_branches_are_dropped_lets_tokens_pass() -> None:
    block, x = block_of(), tokens()
    assert torch.equal(block(x, keep=np.zeros((2, 3))), x)


def test_weights_of_a_branch_that_every_image_drops_have_a_gradient_of_zero() -> None:
    """None would differ from what a process gets whose images keep the branch."""
    block, x = block_of(), tokens()
    (block(x, keep=np.array([[0.0] * 3, [1.0] * 3]))).sum().backward()
    gradients = {name: p.grad for name, p in block.named_parameters()}
    for name, gradient in gradients.items():
        assert gradient is not None, name
        assert bool(gradient.any()) == (not name.startswith(("attn", "norm1"))), name


@pytest.mark.parametrize("kind", ["plain", "layer scale"])
def test_a_branch_is_added_to_the_images_that_keep_it_with_its_factor(kind: str) -> None:
    block, x = block_of(kind), tokens()
    keep = np.array([[0.0, 1.25, 1.25], [1.5, 0.0, 1.5]])
    plain = []
    for image in range(3):
        y = x[image : image + 1]
        y = y + keep[0, image] * block.ls1(block.attn(block.norm1(y)))
        plain.append(y + keep[1, image] * block.ls2(block.mlp(block.norm2(y))))
    out = block(x, keep=keep)
    torch.testing.assert_close(out, torch.cat(plain), rtol=1e-5, atol=1e-5)
    wanted = torch.zeros(3, 9, dtype=torch.bool)
    wanted[1, 4:7] = wanted[2, 8] = True
    chosen = block(x, keep=keep, chosen=ChosenTokens.cls_and(Mask.count(wanted), prefix=1))
    expected = torch.cat([out[:, 0], out[:, 1:][wanted]])
    torch.testing.assert_close(chosen, expected, rtol=1e-5, atol=1e-5)
