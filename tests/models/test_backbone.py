import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from timm.layers import Attention
from timm.models.vision_transformer import Block, VisionTransformer
from torch import Tensor, nn

from attmask import errors
from attmask.errors import UserError
from attmask.mask import Mask
from attmask.models.backbone import (
    Backbone,
    BackboneConfig,
    Tokens,
    build_backbone,
    drop_path_rates,
    patches_along,
)
from tests.reference import reference_network, tensors

GOLDEN = tensors("network")
SMALL = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=24, depth=3, heads=3)


def shaken(backbone: Backbone) -> Backbone:
    """Weights far from their start, so that every one of them matters."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return backbone


def small(layer: int | None = None, *, channels: int = 3, registers: int = 0) -> Backbone:
    torch.manual_seed(0)
    config = SMALL.model_copy(update={"registers": registers})
    return shaken(build_backbone(config, image_size=32, channels=channels, layer=layer))


def bare(**parts: Any) -> Backbone:
    """A timm network with parts that no name in timm puts together."""
    torch.manual_seed(0)
    arguments: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 24,
        "depth": 3,
        "num_heads": 3,
    }
    return shaken(Backbone(VisionTransformer(num_classes=0, **{**arguments, **parts})))


def named(name: str, registers: int = 0) -> Backbone:
    torch.manual_seed(0)
    config = SMALL.model_copy(update={"name": name, "registers": registers})
    return shaken(build_backbone(config, image_size=32, channels=3))


def blocks_of(backbone: Backbone) -> list[Block]:
    return [block for block in backbone.vit.blocks if isinstance(block, Block)]


def pictures(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def some_patches(images: int, patches: int) -> Tensor:
    """A mask of another size for each image; the first has none."""
    lot = torch.rand(images, patches, generator=torch.Generator().manual_seed(2))
    return lot < torch.linspace(0, 0.6, images)[:, None]


def every(tokens: Tokens) -> Tensor:
    return torch.cat([tokens.cls[:, None], tokens.patches], dim=1)


def close(ours: Tensor, theirs: Tensor, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


# --- against the reference


def test_tokens_and_attention_equal_the_reference() -> None:
    with torch.no_grad():
        tokens = reference_network().backbone(GOLDEN["images"])
    close(every(tokens), GOLDEN["tokens"])
    close(tokens.attention, GOLDEN["last_attention"].mean(1)[:, 0, 1:], 1e-5)


def test_masked_tokens_equal_the_reference() -> None:
    mask = GOLDEN["mask"].flatten(1)
    with torch.no_grad():
        close(every(reference_network().backbone(GOLDEN["images"], mask)), GOLDEN["masked_tokens"])


@pytest.mark.parametrize("kind", ["local", "rect"])
def test_tokens_of_other_sizes_equal_the_reference(kind: str) -> None:
    backbone = reference_network().backbone
    with torch.no_grad():
        close(every(backbone(GOLDEN[f"{kind}_images"])), GOLDEN[f"{kind}_tokens"])
        backbone.positions = "size"
        by_size = every(backbone(GOLDEN[f"{kind}_images"]))
    assert (by_size - GOLDEN[f"{kind}_tokens"]).abs().max() > 1e-3


def test_each_head_of_the_last_attention_equals_the_reference() -> None:
    with torch.no_grad():
        heads = reference_network().backbone.attention_heads(GOLDEN["images"])
    close(heads, GOLDEN["last_attention"][:, :, 0, 1:], 1e-5)


def test_cls_of_the_last_blocks_equals_the_reference() -> None:
    backbone = reference_network().backbone
    with torch.no_grad():
        close(backbone.cls_of_last_blocks(GOLDEN["images"], 4), GOLDEN["last_blocks_cls"])
        close(backbone.cls_of_last_blocks(GOLDEN["images"], 2), GOLDEN["last_blocks_cls"][2:])


# --- any network of timm

NETWORKS: dict[str, Callable[[], Backbone]] = {
    "plain": small,
    "registers": lambda: small(registers=4),
    "registers without a position": lambda: named("vit_small_patch14_reg4_dinov2"),
    "layer scale": lambda: named("deit3_small_patch16_224"),
    "norm before the blocks": lambda: named("vit_base_patch16_clip_224"),
    "query and key norm": lambda: bare(qk_norm=True, qkv_bias=False),
    "all of them": lambda: bare(qk_norm=True, reg_tokens=2, init_values=0.5, pre_norm=True),
    "no positions": lambda: bare(pos_embed="none"),
    "wide images": lambda: bare(img_size=(32, 48)),
}
each_network = pytest.mark.parametrize("network", NETWORKS)


def trained_size(backbone: Backbone) -> tuple[int, int]:
    rows, cols = backbone.vit.patch_embed.grid_size
    return rows * backbone.patch_size, cols * backbone.patch_size


@each_network
def test_tokens_are_those_of_timms_own_forward(network: str) -> None:
    backbone = NETWORKS[network]()
    images = pictures(2, 3, *trained_size(backbone))
    with torch.no_grad():
        tokens, theirs = backbone(images), backbone.vit.forward_features(images)
    close(tokens.cls, theirs[:, 0])
    close(tokens.patches, theirs[:, backbone.vit.num_prefix_tokens :])


@each_network
def test_attention_of_any_layer_is_the_row_of_the_attention_matrix(network: str) -> None:
    whole = NETWORKS[network]()
    images = pictures(2, 3, *trained_size(whole))
    blocks, prefix = blocks_of(whole), whole.vit.num_prefix_tokens
    for layer in (1, 2, 3):
        backbone = Backbone(whole.vit, layer=layer)
        with torch.no_grad():
            x = backbone._embed(images, None)
            for block in blocks[: layer - 1]:
                x = block(x)
            watched = blocks[layer - 1]
            attn = watched.attn
            assert isinstance(attn, Attention)
            qkv = attn.qkv(watched.norm1(x)).unflatten(-1, (3, 3, 8))
            q, k = attn.q_norm(qkv[:, :, 0]), attn.k_norm(qkv[:, :, 1])
            logits = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(8)
            row = logits.softmax(-1).mean(1)[:, 0, prefix:]
            close(backbone(images).attention, row, 1e-5)
            close(backbone.summary(images).attention, row, 1e-5)


@each_network
def test_select_and_summary_are_parts_of_forward(network: str) -> None:
    backbone = NETWORKS[network]()
    images = pictures(4, 3, *trained_size(backbone))
    patches = math.prod(backbone.grid(*images.shape[-2:]))
    mask, wanted = some_patches(4, patches), some_patches(4, patches).flip(1)
    with torch.no_grad():
        plain, masked = backbone(images), backbone(images, mask)
        summary, some = backbone.summary(images), backbone.select(images, mask, Mask.count(wanted))
        alone = backbone.select(images)
    close(summary.cls, plain.cls, 1e-5)
    close(summary.attention, plain.attention, 1e-6)
    close(some.cls, masked.cls, 1e-5)
    close(some.patches, masked.patches[wanted], 1e-5)
    close(alone.cls, plain.cls, 1e-5)
    assert alone.patches.shape == (0, 24)


@pytest.mark.parametrize("registers", [0, 3])
def test_neither_cls_nor_registers_are_among_the_patches(registers: int) -> None:
    backbone = small(registers=registers)
    tokens = backbone(pictures(2, 3, 32, 40))
    assert tokens.patches.shape == (2, 20, 24)
    assert tokens.attention.shape == (2, 20)
    assert backbone.attention_heads(pictures(2, 3, 32, 40)).shape == (2, 3, 20)
    assert (tokens.attention.sum(1) < 1).all()


@settings(max_examples=15)
@given(rows=st.integers(1, 6), cols=st.integers(1, 6), channels=st.sampled_from([1, 3, 4]))
def test_any_size_and_any_number_of_channels_will_do(rows: int, cols: int, channels: int) -> None:
    backbone = small(channels=channels)
    assert backbone.channels == channels
    images = pictures(2, channels, 8 * rows, 8 * cols)
    assert backbone.grid(8 * rows, 8 * cols) == (rows, cols)
    tokens = backbone(images, some_patches(2, rows * cols))
    assert tokens.patches.shape == (2, rows * cols, 24)
    assert every(tokens).isfinite().all()


def test_patches_are_counted_row_by_row_in_images_that_are_not_square() -> None:
    backbone = bare(pos_embed="none", depth=1)
    images = pictures(1, 3, 16, 40)
    changed = images.clone()
    changed[:, :, 8:16, 24:32] += 1  # second row, fourth column of 2 x 5
    hidden = torch.zeros(1, 10, dtype=torch.bool)
    hidden[0, 5 + 3] = True
    with torch.no_grad():
        assert (backbone(images).cls - backbone(changed).cls).abs().max() > 1e-4
        close(every(backbone(images, hidden)), every(backbone(changed, hidden)), 1e-6)


def test_a_masked_patch_is_not_seen_but_its_place_is() -> None:
    backbone = small()
    images = pictures(3, 3, 32, 32)
    mask = some_patches(3, 16)
    hidden = mask.view(3, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3)
    with torch.no_grad():
        tokens = backbone(images, mask)
        other = backbone(torch.where(hidden, pictures(3, 3, 32, 32) * 7, images), mask)
        close(every(tokens), every(other), 1e-6)
        assert torch.equal(every(backbone(images, mask & False)), every(backbone(images)))
        x = backbone._embed(images, torch.ones(3, 16, dtype=torch.bool))
    assert backbone.vit.pos_embed is not None
    placed = backbone.mask_token + backbone.vit.pos_embed[:, 1:]
    close(x[:, 1:], placed.expand(3, -1, -1), 1e-6)


def test_positions_are_resized_as_the_settings_say() -> None:
    torch.manual_seed(0)
    images = pictures(1, 3, 24, 40)
    outputs = []
    for positions in ("size", "reference"):
        config = SMALL.model_copy(update={"positions": positions})
        torch.manual_seed(0)
        backbone = shaken(build_backbone(config, image_size=32, channels=3))
        assert backbone.positions == positions
        outputs.append(backbone(images).cls)
    assert (outputs[0] - outputs[1]).abs().max() > 1e-3


# --- number formats and compilation


@pytest.mark.parametrize("network", ["plain", "all of them"])
def test_bf16_gives_the_same_tokens_within_its_precision(network: str) -> None:
    backbone = NETWORKS[network]()
    images = pictures(4, 3, 32, 32)
    mask = some_patches(4, 16)
    with torch.no_grad():
        exact = backbone(images, mask)
        with torch.autocast("cpu", torch.bfloat16):
            cast = backbone(images, mask)
            some = backbone.select(images, mask, Mask.count(mask))
            summary = backbone.summary(images)
    scale = every(exact).std()
    assert (every(cast).float() - every(exact)).abs().max() < 0.1 * scale
    assert (every(cast).float() - every(exact)).abs().mean() < 0.02 * scale
    assert (some.patches.float() - exact.patches[mask]).abs().max() < 0.1 * scale
    assert cast.attention.dtype == summary.attention.dtype == torch.float32
    assert (cast.attention - exact.attention).abs().max() < 0.02 * exact.attention.max()


def test_bf16_makes_no_ties_in_the_attention() -> None:
    backbone = small()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        attention = backbone(pictures(1, 3, 160, 160)).attention
    assert attention.unique().numel() > 0.98 * 400
    assert attention.bfloat16().unique().numel() < 0.9 * 400  # there would be many


COMPILED = """
import sys, torch
import numpy as np
from attmask.mask import Mask
from torch._dynamo.utils import counters
from attmask.models.backbone import BackboneConfig, build_backbone

backend, name = sys.argv[1:]
scale = 0.5 if "dinov3" in name else None
torch.manual_seed(0)
config = BackboneConfig(
    name=name, patch_size=8, width=24, depth=4, heads=3, layer_scale=scale
)
backbone = build_backbone(config, image_size=32, channels=3, layer=2)
images, mask = torch.randn(2, 3, 32, 32), torch.rand(2, 16) < 0.4
def outputs(network):
    tokens = network(images, mask)
    return torch.cat([tokens.cls.flatten(), tokens.patches.flatten(), tokens.attention.flatten()])
def gradient():
    backbone.zero_grad()
    chosen = backbone.select(images, mask, Mask.count(mask), np.full((4, 2, 2), 1.1))
    # Not the sum of squares: after a layer norm that is a constant, and its gradient rounding.
    (chosen.patches * torch.linspace(-1, 1, 24)).sum().backward()
    return torch.cat([p.grad.flatten() for p in backbone.parameters() if p.grad is not None])
plain, plain_gradient = outputs(backbone).detach(), gradient()

whole = torch.compile(backbone, backend=backend, fullgraph=True)  # a hook would break the graph
with torch.no_grad():
    torch.testing.assert_close(outputs(whole), plain, rtol=1e-4, atol=1e-5)

torch._dynamo.reset()
counters.clear()
backbone.compile_blocks(backend)
with torch.no_grad():
    torch.testing.assert_close(outputs(backbone), plain, rtol=1e-4, atol=1e-5)
assert counters["stats"]["unique_graphs"] == 2, counters  # each branch once for all blocks
assert not counters["graph_break"], counters
torch.testing.assert_close(gradient(), plain_gradient, rtol=1e-3, atol=1e-4)
"""


def run_compiled(backend: str, name: str) -> None:
    """In a process of its own: there no shape checks stand in the compiler's way."""
    source = Path(errors.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, backend, name],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr


both_classes = pytest.mark.parametrize(
    "name", ["vit_tiny_patch16_224", "vit_small_patch16_dinov3_qkvb"]
)


@pytest.mark.slow
@both_classes
def test_tokens_attention_and_gradients_are_the_same_when_compiled(name: str) -> None:
    run_compiled("aot_eager", name)  # traced and differentiated as for any device, without C++


@pytest.mark.slow
@both_classes
def test_tokens_attention_and_gradients_are_the_same_in_generated_code(name: str) -> None:
    run_compiled("inductor", name)


# --- drop path


def test_recomputing_blocks_saves_memory_and_changes_no_bit_of_a_gradient() -> None:
    keep = np.array([[[1.0, 0, 1]] * 2, [[1.25, 1.25, 0]] * 2, [[1.0, 1, 1]] * 2])
    images, mask = pictures(3, 3, 32, 32), some_patches(3, 16)
    gradients: list[Tensor] = []
    kept: list[int] = []
    for recompute in (False, True):
        backbone = small()
        if recompute:
            backbone.recompute_blocks()
        kept.append(0)

        def count(tensor: Tensor) -> Tensor:
            kept[-1] += tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            out = backbone.select(images, mask, Mask.count(mask), keep)
        (out.cls.square().sum() + out.patches.square().sum()).backward()
        gradients.append(
            torch.cat([p.grad.flatten() for p in backbone.parameters() if p.grad is not None])
        )
    assert torch.equal(gradients[0], gradients[1])
    assert kept[1] < kept[0] / 2


def test_drop_path_rises_linearly_over_depth() -> None:
    rates = drop_path_rates(reference_network().backbone, 0.3)
    assert rates.tolist() == pytest.approx([0, 0.1, 0.2, 0.3])
    assert drop_path_rates(bare(depth=1), 0.3).tolist() == [0]


def test_drop_path_is_only_what_is_given() -> None:
    backbone = small().train()  # the mode of the module changes nothing
    images, mask = pictures(3, 3, 32, 32), some_patches(3, 16)
    with torch.no_grad():
        without = backbone.select(images, mask, Mask.count(mask))
        torch.manual_seed(5)
        again = backbone.select(images, mask, Mask.count(mask))
        ones = backbone.select(images, mask, Mask.count(mask), np.ones((3, 2, 3)))
        nothing = backbone.select(images, mask, Mask.count(mask), np.zeros((3, 2, 3)))
        embedded = backbone.vit.norm(backbone._embed(images, mask))
    assert torch.equal(without.patches, again.patches)
    close(ones.cls, without.cls, 1e-6)
    close(ones.patches, without.patches, 1e-6)
    close(nothing.cls, embedded[:, 0], 1e-6)
    close(nothing.patches, embedded[:, 1:][mask], 1e-6)


def test_outputs_of_blocks_take_the_drop_path_and_the_final_norm() -> None:
    backbone, images = small(), pictures(3, 3, 32, 32)
    keep = np.random.default_rng(5).random((3, 2, 3)).round() * 1.5
    normed = backbone.outputs(images, (1, 3, 3), keep, norm=True)
    plain = backbone.outputs(images, (1, 3, 3), keep)
    close(normed[2], backbone.all_tokens(images, keep))
    close(normed, backbone.vit.norm(plain))
    assert torch.equal(plain[1], plain[2])
    assert (plain - backbone.outputs(images, (1, 3, 3))).abs().amax((1, 2, 3)).min() > 1e-2


def test_every_block_and_image_uses_its_own_drop_path() -> None:
    backbone = small()
    images = pictures(3, 3, 32, 32)
    keep = np.random.default_rng(3).random((3, 2, 3)).round() * 1.5
    with torch.no_grad():
        out = backbone.select(images, keep=keep)
        x = backbone._embed(images, None)
        for block, (attention, mlp) in zip(blocks_of(backbone), keep, strict=True):
            x = x + torch.tensor(attention).float()[:, None, None] * block.attn(block.norm1(x))
            x = x + torch.tensor(mlp).float()[:, None, None] * block.mlp(block.norm2(x))
    close(out.cls, backbone.vit.norm(x)[:, 0], 1e-5)


# --- how it starts


def test_a_network_starts_as_the_references_does() -> None:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_small_patch16_224", patch_size=16, depth=2)
    backbone = build_backbone(config, image_size=224, channels=3)
    vit = backbone.vit
    linear = [m for m in vit.modules() if isinstance(m, nn.Linear)]
    assert len(linear) == 8
    for module in linear:
        assert module.weight.std().item() == pytest.approx(0.02, rel=0.02)
        assert module.bias.abs().max() == 0
    assert vit.pos_embed is not None
    assert vit.cls_token is not None
    assert vit.pos_embed.std().item() == pytest.approx(0.02, rel=0.02)
    assert vit.cls_token.std().item() == pytest.approx(0.02, rel=0.15)
    assert backbone.mask_token.shape == (1, 384)
    assert backbone.mask_token.abs().max() == 0
    bound = 1 / math.sqrt(3 * 16 * 16)  # PyTorch's default for a convolution
    assert vit.patch_embed.proj.weight.abs().max().item() == pytest.approx(bound, rel=1e-2)
    assert vit.patch_embed.proj.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    norms = [m for m in vit.modules() if isinstance(m, nn.LayerNorm)]
    assert len(norms) == 5
    assert {norm.eps for norm in norms} == {1e-6}


def test_the_blocks_may_start_wider_and_nothing_else_does() -> None:
    torch.manual_seed(0)
    config = SMALL.model_copy(update={"width": 96, "init_std": 0.1})
    vit = build_backbone(config, image_size=128, channels=3).vit
    linear = [m for m in vit.blocks.modules() if isinstance(m, nn.Linear)]
    assert len(linear) == 12
    for module in linear:
        assert module.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert vit.pos_embed is not None
    assert vit.pos_embed.std().item() == pytest.approx(0.02, rel=0.05)


def test_the_settings_make_the_network() -> None:
    backbone = build_backbone(SMALL, image_size=48, channels=2)
    assert (backbone.width, backbone.depth, backbone.patch_size) == (24, 3, 8)
    assert backbone.channels == 2
    assert backbone.vit.patch_embed.grid_size == (6, 6)
    assert backbone.layer == 2  # the last


# --- what is refused


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",  # no such settings
        "swin_tiny_patch4_window7_224",
        "beit_base_patch16_224",  # other blocks
        "vit_base_patch16_siglip_224",  # no class token
        "vit_tiny_r_s16_p8_224",  # a convolutional stem
        "deit_tiny_distilled_patch16_224",  # a second token for another teacher
        "vit_small_patch16_rope_224",  # positions inside the blocks
    ],
)
def test_unsupported_networks_are_refused_in_one_line(name: str) -> None:
    assert timm.is_model(name)
    config = BackboneConfig(name=name, width=48, depth=1, heads=3)
    with pytest.raises(UserError, match="use one of timm's vit_") as caught:
        build_backbone(config, image_size=64, channels=3)
    assert "\n" not in str(caught.value)


def test_an_unknown_network_is_refused_with_its_neighbours() -> None:
    config = BackboneConfig(name="vit_smal_patch16_224")
    with pytest.raises(UserError, match=r"no network 'vit_smal_patch16_224'; try vit_small"):
        build_backbone(config, image_size=224, channels=3)


@pytest.mark.parametrize("wrong", [{"width": 100, "heads": 3}, {"width": 100}, {"heads": 7}])
def test_heads_that_do_not_divide_the_width_are_refused(wrong: dict[str, int]) -> None:
    config = BackboneConfig.model_validate({"depth": 1, **wrong})
    with pytest.raises(UserError, match=r"not a multiple|divisible"):
        build_backbone(config, image_size=224, channels=3)


@pytest.mark.parametrize("wrong", [{"width": 0}, {"depth": 0}, {"heads": 0}, {"drop_path": 1.0}])
def test_impossible_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        BackboneConfig.model_validate(wrong)


@pytest.mark.parametrize(
    ("pixels", "advice"), [(100, "use 96 or 112"), (10, "use 16"), (31, "use 16 or 32")]
)
def test_a_size_that_is_not_a_multiple_of_the_patch_is_refused(pixels: int, advice: str) -> None:
    with pytest.raises(UserError, match=f"image size {pixels} .*; {advice}$"):
        patches_along(pixels, 16)
    with pytest.raises(UserError, match=advice):
        build_backbone(BackboneConfig(), image_size=pixels, channels=3)


def test_an_image_of_the_wrong_size_is_refused() -> None:
    with pytest.raises(UserError, match="image size 30 is not a multiple of patch size 8"):
        small()(pictures(1, 3, 32, 30))


@pytest.mark.parametrize("layer", [0, 4, -1])
def test_attention_of_a_layer_that_does_not_exist_is_refused(layer: int) -> None:
    with pytest.raises(UserError, match="layers 1 to 3"):
        small(layer)
