"""timm's vision transformers: the row is that of timm's own attention, computed in full."""

from typing import Any

import pytest
import timm
import torch
from timm.models.vision_transformer import ParallelScalingBlock
from torch import Tensor, nn

from attmask import cls_attention, cls_attention_heads
from attmask.errors import UserError

NETWORKS: dict[str, tuple[str, dict[str, Any], int]] = {
    "ViT": ("vit_tiny_patch16_224", {}, 1),
    "ViT with normed queries": ("vit_tiny_patch16_224", {"qk_norm": True}, 1),
    "DINOv2 with registers": ("vit_small_patch14_reg4_dinov2", {}, 5),
    "DeiT with its distillation token": ("deit_tiny_distilled_patch16_224", {}, 2),
    "EVA-02, rotary positions": ("eva02_tiny_patch14_224", {}, 1),
    "EVA-02, separate projections": ("eva02_tiny_patch14_224", {"qkv_fused": False}, 1),
    "DINOv3": ("vit_small_patch16_dinov3", {}, 5),
    "rotary positions that each layer learns": ("vit_small_patch16_rope_mixed_224", {}, 1),
    "perception encoder": ("vit_pe_core_tiny_patch16_384", {}, 1),
    "grouped queries": (
        "vit_pe_core_tiny_patch16_384",
        {"qkv_fused": False, "num_kv_heads": 2},
        1,
    ),
    "BEiT": ("beit_base_patch16_224", {}, 1),
    "BEiT with shared positions": (
        "beit_base_patch16_224",
        {"use_rel_pos_bias": False, "use_shared_rel_pos_bias": True},
        1,
    ),
}


def build(name: str = "vit_tiny_patch16_224", **changes: Any) -> nn.Module:
    """A small network whose weights are so large that its rows are far from uniform."""
    torch.manual_seed(0)
    small: dict[str, Any] = {"embed_dim": 32, "depth": 3, "num_heads": 4, "patch_size": 8}
    model = timm.create_model(name, **{**small, "img_size": 32, "num_classes": 0, **changes})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    assert isinstance(model, nn.Module)
    return model.eval()


def rows_of_timm(
    model: nn.Module, images: Tensor, layer: int, monkeypatch: pytest.MonkeyPatch
) -> Tensor:
    """All rows of the softmax of timm's own attention, B x H x T x T."""
    seen: list[Tensor] = []
    softmax = Tensor.softmax

    def record(x: Tensor, dim: int) -> Tensor:
        seen.append(softmax(x, dim=dim))
        return seen[-1]

    with monkeypatch.context() as patched, torch.no_grad():
        patched.setattr(Tensor, "softmax", record)
        for module in model.modules():
            if hasattr(module, "fused_attn"):
                patched.setattr(module, "fused_attn", False)
        model(images)
    assert len(seen) >= 3  # then that of a pooling head, if there is one
    return seen[layer - 1]


@pytest.mark.parametrize(("name", "changes", "prefix"), NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("layer", [1, 3])
def test_the_row_is_that_of_timms_own_attention(
    name: str, changes: dict[str, Any], prefix: int, layer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, images = build(name, **changes), torch.randn(2, 3, 32, 32)
    wanted = rows_of_timm(model, images, layer, monkeypatch)[:, :, 0, prefix:]
    assert wanted.std() > 1e-3, "uniform rows would prove little"
    heads = cls_attention_heads(model, images, layer)
    assert heads.shape == (2, 4, 16)
    torch.testing.assert_close(heads, wanted, atol=1e-5, rtol=0)
    mean = cls_attention(model, images, layer)
    torch.testing.assert_close(mean, wanted.mean(dim=1), atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_small_patch16_dinov3"])
def test_weights_in_bf16_give_a_row_in_fp32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(name, qk_norm=True).bfloat16()
    images = torch.randn(2, 3, 32, 32).bfloat16()
    heads = cls_attention_heads(model, images, 1)
    assert heads.dtype == torch.float32
    wanted = rows_of_timm(model, images, 1, monkeypatch)[:, :, 0, -16:]
    torch.testing.assert_close(heads, wanted.float(), atol=0.02, rtol=0)


def test_a_network_without_cls_is_refused() -> None:
    model = build(class_token=False, global_pool="avg")
    with pytest.raises(UserError, match=r"this VisionTransformer has no \[CLS\] token"):
        cls_attention(model, torch.zeros(1, 3, 32, 32))


def test_a_network_that_drops_patches_is_refused_while_it_trains() -> None:
    model = build(patch_drop_rate=0.5)
    assert cls_attention(model, torch.zeros(1, 3, 32, 32)).shape == (1, 16)
    with pytest.raises(UserError, match=r"drops patches while it trains; call its eval\(\) first"):
        cls_attention(model.train(), torch.zeros(1, 3, 32, 32))


def test_blocks_with_another_attention_are_refused() -> None:
    model = build(block_fn=ParallelScalingBlock)
    with pytest.raises(UserError, match="computes attention with NoneType"):
        cls_attention(model, torch.zeros(1, 3, 32, 32))


def test_a_mask_of_attention_is_refused() -> None:
    model = build()
    with pytest.raises(UserError, match="under an attention mask cannot be read"):
        cls_attention(model, torch.zeros(1, 3, 32, 32), attn_mask=torch.ones(17, 17).bool())
