"""The backbone with timm's class Eva: tokens, attention, choice, drop path against timm's own."""

import copy
import math
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from timm.layers import apply_rot_embed_cat
from timm.models.eva import Eva, EvaAttention
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attmask.errors import UserError
from attmask.mask import Mask
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from tests.models.rotary_networks import (
    KINDS,
    NAMES,
    blocks_of,
    eva,
    other_eva,
    small_eva,
    timms_angles,
)
from tests.runs import SOURCE

SIZES = [(224, 224), (96, 96), (64, 112)]
each_kind = pytest.mark.parametrize("kind", KINDS)


def pictures(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def some_patches(images: int, patches: int) -> Tensor:
    """A mask of another size for each image; the first has none."""
    lot = torch.rand(images, patches, generator=torch.Generator().manual_seed(2))
    return lot < torch.linspace(0, 0.6, images)[:, None]


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def attention_matrices(vit: Eva, images: Tensor) -> list[Tensor]:
    """softmax(q kT) of every block of timm's own forward, by hooks."""
    found: list[Tensor] = []

    def keep(_: nn.Module, given: tuple[Tensor], __: Tensor) -> None:
        found.append(given[0])

    for block in blocks_of(vit):
        assert isinstance(block.attn, EvaAttention)
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(keep)
    vit.forward_features(images)
    return found


# --- against timm


@each_kind
@pytest.mark.parametrize("size", SIZES)
def test_tokens_are_those_of_timms_own_forward(kind: str, size: tuple[int, int]) -> None:
    vit = eva(kind)
    images = pictures(2, 3, *size)
    with torch.no_grad():
        theirs = vit.forward_features(images)
        backbone = Backbone(vit)
        ours, through_timm = backbone(images), backbone.vit.forward_features(images)
    close(ours.cls, theirs[:, 0])
    close(ours.patches, theirs[:, backbone.prefix :])
    close(through_timm, theirs)
    assert ours.patches.shape[1] == size[0] * size[1] // 256


@each_kind
@pytest.mark.parametrize("size", SIZES[1:])
def test_attention_is_the_row_of_timms_attention_matrix(kind: str, size: tuple[int, int]) -> None:
    vit = eva(kind)
    images = pictures(2, 3, *size)
    with torch.no_grad():
        matrices = attention_matrices(copy.deepcopy(vit), images)
        for layer, matrix in enumerate(matrices, start=1):
            backbone = Backbone(vit, layer=layer)
            row = matrix[:, :, 0, backbone.prefix :]
            close(backbone.attention_heads(images), row, 1e-6)
            close(backbone(images).attention, row.mean(dim=1), 1e-6)
            close(backbone.summary(images).attention, row.mean(dim=1), 1e-6)
            assert (row.sum(-1) < 1).all()  # registers are dropped, not renormalised


def test_attention_is_the_softmax_of_turned_queries_and_keys() -> None:
    """Written out, patch by patch."""
    vit = small_eva(depth=1)
    images = pictures(1, 3, 16, 24)
    backbone = Backbone(vit)
    (block,) = blocks_of(vit)
    attn = block.attn
    assert isinstance(attn, EvaAttention)
    angles = timms_angles(vit, 2, 3)
    with torch.no_grad():
        y = block.norm1(backbone._embed(images, None))[0]
        for head in range(3):
            rows = slice(8 * head, 8 * head + 8)
            q = y[0] @ attn.qkv.weight[rows].T
            logits = []
            for token in range(11):
                k = y[token] @ attn.qkv.weight[24:48][rows].T
                if token >= 5:
                    k = apply_rot_embed_cat(k, angles[token - 5], half=True)
                logits.append(q @ k / math.sqrt(8))
            row = torch.stack(logits).softmax(0)[5:]
            close(backbone.attention_heads(images)[0, head], row, 1e-6)


@each_kind
def test_gradients_are_those_of_timms_own_forward(kind: str) -> None:
    theirs = eva(kind)
    backbone = Backbone(copy.deepcopy(theirs))
    images, weight = pictures(2, 3, 32, 48), pictures(48)
    (theirs.forward_features(images)[:, backbone.prefix :] * weight).sum().backward()
    (backbone(images).patches * weight).sum().backward()
    for name, parameter in theirs.named_parameters():
        ours = backbone.vit.get_parameter(name).grad
        assert parameter.grad is not None
        assert ours is not None
        close(ours, parameter.grad, 1e-4)


# --- only what is read


@each_kind
@pytest.mark.parametrize("fused", [True, False])
def test_select_and_summary_are_parts_of_forward(kind: str, fused: bool) -> None:
    backbone = Backbone(eva(kind))
    backbone.fuse_attention(fused)
    images = pictures(4, 3, 64, 80)
    mask, wanted = some_patches(4, 20), some_patches(4, 20).flip(1)
    with torch.no_grad():
        plain, masked = backbone(images), backbone(images, mask)
        some, alone = backbone.select(images, mask, Mask.count(wanted)), backbone.select(images)
        summary = backbone.summary(images)
    close(some.cls, masked.cls)
    close(some.patches, masked.patches[wanted])
    close(alone.cls, plain.cls)
    close(summary.cls, plain.cls)
    close(summary.attention, plain.attention, 1e-6)


def test_gradients_of_chosen_patches_are_those_of_forward() -> None:
    images, wanted = pictures(3, 3, 32, 40), some_patches(3, 20)
    weight = pictures(24)
    gradients = []
    for chosen in (False, True):
        backbone = Backbone(small_eva(qkv_bias=True))
        if chosen:
            patches = backbone.select(images, wanted, Mask.count(wanted)).patches
        else:
            patches = backbone(images, wanted).patches[wanted]
        (patches * weight).sum().backward()
        read = [p.grad for p in backbone.parameters() if p.grad is not None]
        gradients.append(torch.cat([gradient.flatten() for gradient in read]))
    close(gradients[1], gradients[0], 1e-4)


def test_derivatives_are_those_of_finite_differences() -> None:
    backbone = Backbone(small_eva(depth=2, embed_dim=8, num_heads=2, qkv_bias=True)).double()
    wanted = Mask.count(some_patches(2, 2))
    mask = torch.tensor([[True, False], [False, False]])

    def chosen(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        some = backbone.select(images, mask, wanted)
        return some.cls, some.patches, backbone.summary(images).attention

    images = pictures(2, 3, 8, 16).double().requires_grad_()
    assert torch.autograd.gradcheck(chosen, (images,), fast_mode=True)


def test_outputs_are_those_after_each_block_of_timm() -> None:
    vit = small_eva()
    images = pictures(2, 3, 32, 40)
    with torch.no_grad():
        theirs: Any = copy.deepcopy(vit).forward_intermediates(
            images, output_fmt="NLC", intermediates_only=True, return_prefix_tokens=True
        )
        backbone = Backbone(vit)
        ours = backbone.last_outputs(images, 3)
        normed = backbone.outputs(images, (3,), norm=True)
        close(normed[0], backbone.all_tokens(images))
    for mine, (patches, prefix) in zip(ours, theirs, strict=True):
        close(mine, torch.cat([prefix, patches], dim=1))


# --- masking


def test_a_masked_patch_is_not_seen_but_its_place_is() -> None:
    backbone = Backbone(small_eva())
    with torch.no_grad():
        backbone.mask_token.normal_(generator=torch.Generator().manual_seed(3))
    images, mask = pictures(3, 3, 32, 32), some_patches(3, 16)
    hidden = mask.view(3, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3)
    with torch.no_grad():
        tokens = backbone(images, mask)
        other = backbone(torch.where(hidden, 7 * images, images), mask)
        all_hidden = backbone(images, torch.ones_like(mask)).patches
        embedded, plain = backbone._embed(images, mask), backbone._embed(images, None)
    close(tokens.patches, other.patches, 1e-6)
    prefix = backbone.prefix
    assert torch.equal(embedded[:, prefix:][mask], backbone.mask_token.expand(int(mask.sum()), -1))
    assert torch.equal(embedded[:, prefix:][~mask], plain[:, prefix:][~mask])
    assert torch.equal(embedded[:, :prefix], plain[:, :prefix])
    assert torch.pdist(all_hidden[0]).min() > 1e-3  # the same token everywhere, told apart by place


# --- drop path, number formats, memory


def test_every_block_and_image_uses_its_own_drop_path() -> None:
    backbone = Backbone(small_eva())
    images, wanted = pictures(3, 3, 32, 40), some_patches(3, 20)
    keep = np.random.default_rng(3).random((3, 2, 3)).round() * 1.5
    vit = backbone.vit
    assert isinstance(vit, Eva)
    with torch.no_grad():
        some = backbone.select(images, None, Mask.count(wanted), keep)
        x, rope = backbone._embed(images, None), timms_angles(vit, 4, 5)
        for block, factors in zip(blocks_of(vit), torch.tensor(keep).float(), strict=True):
            x = x + factors[0][:, None, None] * block.gamma_1 * block.attn(block.norm1(x), rope)
            x = x + factors[1][:, None, None] * block.gamma_2 * block.mlp(block.norm2(x))
        x = vit.norm(x)
        close(backbone.all_tokens(images, keep), x)
    close(some.cls, x[:, 0])
    close(some.patches, x[:, backbone.prefix :][wanted])


def test_a_branch_that_an_image_drops_is_not_computed() -> None:
    backbone, images = Backbone(small_eva()), pictures(4, 3, 32, 32)
    counts = []
    for kept in (4, 2, 0):
        keep = np.zeros((3, 2, 4))
        keep[:, :, :kept] = 1
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            backbone.all_tokens(images, keep)
        counts.append(counter.get_total_flops())
    embedding = counts[2]
    assert counts[1] - embedding == (counts[0] - embedding) / 2 > 0


def test_bf16_gives_the_same_tokens_and_an_exact_attention() -> None:
    backbone = Backbone(small_eva())
    images = pictures(1, 3, 160, 160)
    with torch.no_grad():
        exact = backbone(images)
        block, x, rope = backbone.blocks[2], pictures(1, 405, 24), backbone._angles(images)
        row = block.cls_attention(x, 5, rope)
        with torch.autocast("cpu", torch.bfloat16):
            cast = backbone(images)
            assert torch.equal(block.cls_attention(x, 5, rope), row)
    assert cast.attention.dtype == torch.float32
    assert cast.attention.unique().numel() > 0.98 * 400
    scale = exact.patches.std()
    assert (cast.patches.float() - exact.patches).abs().max() < 0.2 * scale
    assert (cast.patches.float() - exact.patches).abs().mean() < 0.02 * scale


def test_recomputing_blocks_changes_no_bit_of_a_gradient() -> None:
    keep = np.array([[[1.0, 0, 1]] * 2, [[1.25, 1.25, 0]] * 2, [[1.0, 1, 1]] * 2])
    images, mask = pictures(3, 3, 32, 32), some_patches(3, 16)
    gradients: list[Tensor] = []
    for recompute in (False, True):
        backbone = Backbone(small_eva())
        if recompute:
            backbone.recompute_blocks()
        out = backbone.select(images, mask, Mask.count(mask), keep)
        (out.cls.square().sum() + out.patches.square().sum()).backward()
        read = [p.grad for p in backbone.parameters() if p.grad is not None]
        gradients.append(torch.cat([gradient.flatten() for gradient in read]))
    assert torch.equal(gradients[0], gradients[1])


EXPORTED = """
import torch
from attmask.models.backbone import BackboneConfig, build_backbone

torch.manual_seed(0)
config = BackboneConfig(
    name="vit_small_patch16_dinov3_qkvb", patch_size=8, width=24, depth=2, heads=3, layer_scale=0.5
)
backbone = build_backbone(config, image_size=32, channels=3).eval()
batch, rows, cols = (torch.export.Dim(name, min=2, max=64) for name in ("batch", "rows", "cols"))
sizes = {"images": {0: batch, 2: 8 * rows, 3: 8 * cols}}
program = torch.export.export(backbone, (torch.randn(2, 3, 32, 40),), dynamic_shapes=sizes)
images = torch.randn(3, 3, 48, 24)
for ours, theirs in zip(program.module()(images), backbone(images), strict=True):
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
"""


def test_an_exported_network_takes_any_number_of_images_of_any_size() -> None:
    """In a process of its own: there no shape checks stand in the exporter's way."""
    done = subprocess.run(
        [sys.executable, "-c", EXPORTED],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr


# --- building and refusing

SMALL = BackboneConfig(
    name="vit_small_patch16_dinov3", patch_size=8, width=24, depth=2, heads=3, registers=2
)


@pytest.mark.parametrize("name", NAMES)
def test_the_settings_make_the_network(name: str) -> None:
    config = SMALL.model_copy(update={"name": name})
    backbone = build_backbone(config, image_size=48, channels=2)
    assert isinstance(backbone.vit, Eva)
    assert (backbone.width, backbone.depth, backbone.heads) == (24, 2, (3, 3))
    assert (backbone.prefix, backbone.patch_size, backbone.channels) == (3, 8, 2)
    assert backbone(torch.zeros(1, 2, 24, 32)).patches.shape == (1, 12, 24)


def test_the_layer_scale_starts_as_the_settings_say() -> None:
    own = build_backbone(SMALL, image_size=32, channels=3).vit.get_parameter("blocks.1.gamma_2")
    assert own.unique().tolist() == pytest.approx([1e-5])
    config = SMALL.model_copy(update={"layer_scale": 0.5})
    vit = build_backbone(config, image_size=32, channels=3).vit
    assert vit.get_parameter("blocks.1.gamma_2").unique().tolist() == [0.5]


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"rope_type": "cat"}, "other positions than the rotary ones of DINOv3"),
        ({"rope_type": "mixed"}, "other positions than the rotary ones of DINOv3"),
        ({"use_rot_pos_emb": False, "use_abs_pos_emb": True}, "other positions than the rotary"),
        ({"use_abs_pos_emb": True}, "position embeddings beside its rotary positions"),
        ({"class_token": False, "num_reg_tokens": 1, "global_pool": "avg"}, "no class token"),
        ({"use_post_norm": True}, "a norm after its branches instead of before them"),
        ({"attn_type": "rope"}, "another kind of attention"),
        ({"patch_drop_rate": 0.5}, "drops patches by itself"),
        ({"use_post_transformer_norm": False}, "no final norm"),
    ],
)
def test_other_networks_of_the_class_are_refused_with_the_reason(
    parts: dict[str, object], why: str
) -> None:
    with pytest.raises(UserError, match=f"timm's class Eva has .*{why}.*; use") as caught:
        Backbone(other_eva(**parts))
    assert "\n" not in str(caught.value)
    Backbone(other_eva())


@pytest.mark.parametrize(("width", "heads"), [(24, 4), (20, 3)])
def test_heads_too_narrow_for_rotary_positions_are_refused(width: int, heads: int) -> None:
    config = SMALL.model_copy(update={"width": width, "heads": heads})
    with pytest.raises(UserError, match=r"is not a multiple of (4 times )?\d heads"):
        build_backbone(config, image_size=32, channels=3)
