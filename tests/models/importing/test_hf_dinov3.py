"""transformers' DINOv3 in the names of timm's Eva: the same tokens from timm's own network."""

from pathlib import Path

import pytest
import timm
import torch
from timm.models.eva import Eva

from attmask.models.importing.hf_dinov3 import dinov3_names
from attmask.models.rotary_weights import has_rotary_positions
from tests.photographs import photographs

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("registers", [4, 0])
def test_timms_eva_takes_the_tensors_and_gives_the_same_tokens(registers: int) -> None:
    theirs = transformers.DINOv3ViTModel(
        transformers.DINOv3ViTConfig(
            hidden_size=48,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=192,
            image_size=64,
            patch_size=16,
            num_register_tokens=registers,
        )
    ).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    found = dinov3_names(Path("x"), theirs.state_dict())
    assert has_rotary_positions(found.tensors)
    del found.tensors["mask_token"]
    eva = timm.create_model(
        "vit_small_patch16_dinov3_qkvb",
        embed_dim=48,
        depth=2,
        num_heads=3,
        num_classes=0,
        img_size=64,
        num_reg_tokens=registers,
    ).eval()
    assert isinstance(eva, Eva)
    eva.load_state_dict(found.tensors)
    for height, width in ((64, 64), (96, 48)):
        images = photographs(2, 3, height, width)
        with torch.no_grad():
            ours, wanted = eva.forward_features(images), theirs(images).last_hidden_state
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)
