"""Hugging Face's vision transformers: the row is that of `output_attentions`."""

from typing import Any

import pytest
import torch
from torch import nn

from attmask import cls_attention, cls_attention_heads
from attmask.errors import UserError

transformers = pytest.importorskip("transformers")

NETWORKS: dict[str, tuple[int, dict[str, object]]] = {
    "ViTModel": (1, {}),
    "ViTForImageClassification": (1, {}),
    "ViTForMaskedImageModeling": (1, {"encoder_stride": 8}),
    "DeiTModel": (2, {}),
    "DeiTForImageClassification": (2, {}),
    "ViTMSNModel": (1, {}),
    "Dinov2Model": (1, {}),
    "Dinov2ForImageClassification": (1, {}),
    "Dinov2WithRegistersModel": (5, {"num_register_tokens": 4}),
    "Dinov2WithRegistersForImageClassification": (3, {"num_register_tokens": 2}),
    "DINOv3ViTModel": (5, {"num_register_tokens": 4}),
}


def build(name: str, attention: str = "sdpa") -> Any:
    """A small network whose weights are so large that its rows are far from uniform."""
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    config = kind.config_class(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        attn_implementation=attention,
        **NETWORKS[name][1],
    )
    model = kind(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model.eval()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("layer", [1, 3])
def test_the_row_is_that_of_output_attentions(name: str, layer: int) -> None:
    prefix, _ = NETWORKS[name]
    model, images = build(name), torch.randn(2, 3, 32, 32)
    eager = build(name, "eager")
    eager.load_state_dict(model.state_dict())
    with torch.no_grad():
        wanted = eager(images, output_attentions=True).attentions[layer - 1][:, :, 0, prefix:]
    assert wanted.std() > 1e-3, "uniform rows would prove little"
    heads = cls_attention_heads(model, images, layer)
    assert heads.shape == (2, 4, 16)
    torch.testing.assert_close(heads, wanted, atol=1e-5, rtol=0)
    mean = cls_attention(model, images, layer)
    torch.testing.assert_close(mean, wanted.mean(dim=1), atol=1e-5, rtol=0)


def test_options_go_to_the_forward_pass() -> None:
    model = build("ViTModel")
    with pytest.raises(ValueError, match="doesn't match model"):
        cls_attention(model, torch.randn(1, 3, 64, 48))
    row = cls_attention(model, torch.randn(1, 3, 64, 48), interpolate_pos_encoding=True)
    assert row.shape == (1, 8 * 6)


@pytest.mark.parametrize("name", ["ViTModel", "DINOv3ViTModel"])
def test_weights_in_bf16_give_a_row_in_fp32(name: str) -> None:
    model, images = build(name), torch.randn(2, 3, 32, 32).bfloat16()
    whole = cls_attention(model, images.float(), 1)
    row = cls_attention(model.bfloat16(), images, 1)
    assert row.dtype == torch.float32
    torch.testing.assert_close(row, whole, atol=0.05, rtol=0)


def test_the_network_is_found_inside_of_another() -> None:
    model, images = build("Dinov2Model"), torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(
        cls_attention(nn.Sequential(model), images), cls_attention(model, images)
    )


def test_a_network_that_hides_patches_from_itself_is_refused() -> None:
    config = transformers.ViTMAEConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
    with pytest.raises(UserError, match="attention of ViTMAEModel cannot be read"):
        cls_attention(transformers.ViTMAEModel(config), torch.zeros(1, 3, 224, 224))
