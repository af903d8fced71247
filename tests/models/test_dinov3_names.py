"""DINOv3's own names become timm's."""

import re

import pytest
import torch
from timm.models.eva import Eva, checkpoint_filter_fn
from torch import Tensor

from attmask.errors import UserError
from attmask.models.backbone import Backbone
from attmask.models.dinov3_names import dinov3_in_timms_names, is_dinov3
from attmask.models.rotary_weights import eva_network_for
from tests.models.rotary_networks import eva

IMAGES = torch.randn(2, 3, 48, 64, generator=torch.Generator().manual_seed(1))
BACK = (
    ("reg_token", "storage_tokens"),
    ("gamma_1", "ls1.gamma"),
    ("gamma_2", "ls2.gamma"),
    ("mlp.fc1_g", "mlp.w1"),
    ("mlp.fc1_x", "mlp.w2"),
)


def checkpoint(vit: Eva) -> dict[str, Tensor]:
    """The weights of a network of timm as DINOv3 stores them."""
    stored: dict[str, Tensor] = {}
    state = vit.state_dict()
    is_gated = any("fc1_g" in name for name in state)
    for name, tensor in state.items():
        if name.endswith("q_bias"):
            attention, width = name.removesuffix("q_bias"), len(tensor)
            keys = torch.full((width,), 7.0)  # never read: the mask is zero there
            bias = [tensor, keys, state[f"{attention}v_bias"]]
            stored[f"{attention}qkv.bias"] = torch.cat(bias)
            mask = torch.cat([torch.ones(width), torch.zeros(width), torch.ones(width)])
            stored[f"{attention}qkv.bias_mask"] = mask
            continue
        if name.endswith("v_bias"):
            continue
        for ours, theirs in (*BACK, *([("mlp.fc2", "mlp.w3")] if is_gated else [])):
            name = name.replace(ours, theirs)
        stored[name] = tensor
    # 100 ** (i / 4) for heads of width 16, in bfloat16 as DINOv3 has them
    stored["rope_embed.periods"] = (100 ** (torch.arange(4) / 4)).bfloat16()
    stored["mask_token"] = torch.full((1, 48), 3.0)
    stored["local_cls_norm.weight"] = torch.ones(48)
    return stored


@pytest.mark.parametrize(
    "kind",
    ["vit_small_patch16_dinov3", "vit_small_patch16_dinov3_qkvb", "vit_small_plus_patch16_dinov3"],
)
def test_a_checkpoint_of_dinov3_gives_the_tokens_of_timm(kind: str) -> None:
    vit = eva(kind)
    stored = checkpoint(vit)
    assert is_dinov3(stored)
    assert not is_dinov3(vit.state_dict())
    found = dinov3_in_timms_names("file", stored)
    assert found.heads == 3
    assert found.mask_token is not None
    assert found.mask_token.unique().tolist() == [3.0]
    assert {re.sub(r"\d+", "0", name) for name in found.left_out} <= {
        "rope_embed.periods",
        "local_cls_norm.weight",
        "blocks.0.attn.qkv.bias_mask",
    }
    backbone = Backbone(eva_network_for("file", found.tensors, found.heads))
    with torch.no_grad():
        tokens, wanted = backbone(IMAGES), vit.forward_features(IMAGES)
    torch.testing.assert_close(tokens.patches, wanted[:, 5:], rtol=1e-5, atol=1e-5)


def test_names_and_tensors_are_those_of_timms_own_conversion() -> None:
    vit = eva("vit_base_patch16_dinov3_qkvb")
    stored = checkpoint(vit)
    theirs = checkpoint_filter_fn(dict(stored), vit)
    ours = dinov3_in_timms_names("file", stored).tensors
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], tensor) for name, tensor in theirs.items())


def test_heads_without_periods_are_unknown() -> None:
    stored = checkpoint(eva())
    del stored["rope_embed.periods"]
    assert is_dinov3(stored)
    assert dinov3_in_timms_names("file", stored).heads is None


@pytest.mark.parametrize(
    ("name", "tensor", "why"),
    [
        ("rope_embed.periods", 10 ** (torch.arange(4) / 4), "other periods than 100"),
        ("rope_embed.periods", torch.ones(0), "other periods than 100"),
        ("rope_embed.periods", 100 ** (torch.arange(5) / 5), "4 times its 5 periods"),
        ("blocks.0.attn.qkv.bias", torch.ones(7), r"qkv.bias of shape \(7,\)"),
        ("blocks.0.attn.qkv.bias_mask", torch.ones(3), r"qkv.bias of shape \(144,\)"),
        ("blocks.0.attn.qkv.bias_mask", torch.ones(144), "a bias of keys"),
    ],
)
def test_what_timms_network_cannot_be_is_refused(name: str, tensor: Tensor, why: str) -> None:
    stored = {**checkpoint(eva("vit_small_patch16_dinov3_qkvb")), name: tensor}
    with pytest.raises(UserError, match=f"^file has .*{why}") as caught:
        dinov3_in_timms_names("file", stored)
    assert "\n" not in str(caught.value)
