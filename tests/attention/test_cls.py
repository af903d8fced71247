"""Reading the attention changes nothing about a network, in any mode, with any error."""

from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn

import attmask
from attmask import Hint, Masker, cls_attention, cls_attention_heads, watch_cls_attention
from attmask.errors import UserError
from attmask.models.backbone import BackboneConfig, build_backbone


def vit(**changes: Any) -> nn.Module:
    torch.manual_seed(0)
    small: dict[str, Any] = {"embed_dim": 48, "depth": 4, "num_heads": 3, "patch_size": 8}
    model = timm.create_model(
        "vit_tiny_patch16_224", **{**small, "img_size": 32, "num_classes": 5, **changes}
    )
    assert isinstance(model, nn.Module)
    return model.eval()


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.fixture
def images() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_layers_are_counted_from_one_or_from_the_end(images: Tensor) -> None:
    model = vit()
    rows = [cls_attention(model, images, layer) for layer in (1, 2, 3, 4)]
    for number, row in enumerate(rows):
        assert torch.equal(cls_attention(model, images, number - 4), row)
    assert torch.equal(cls_attention(model, images), rows[-1])
    assert not torch.equal(rows[0], rows[1])
    for wrong in (0, 5, -5):
        with pytest.raises(UserError, match=f"layer {wrong}: wanted 1 to 4, or -1"):
            cls_attention(model, images, wrong)


def test_watching_gives_the_row_of_a_pass_whose_output_stays_the_same(images: Tensor) -> None:
    model = vit()
    alone = model(images)
    with watch_cls_attention(model, 2) as watched:
        output = model(images)
    assert torch.equal(output, alone)
    assert output.requires_grad
    assert not watched.mean.requires_grad
    assert torch.equal(watched.mean, cls_attention(model, images, 2))
    assert torch.equal(watched.heads, cls_attention_heads(model, images, 2))
    assert hooks(model) == 0


@pytest.mark.parametrize("training", [True, False])
def test_the_mode_and_the_weights_stay_as_they_are(images: Tensor, training: bool) -> None:
    model = vit(drop_path_rate=0.2).train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    row = cls_attention(model, images)
    torch.manual_seed(3)
    assert torch.equal(cls_attention(model, images), row)
    torch.manual_seed(4)
    assert torch.equal(cls_attention(model, images), row) is not training, "as drop path draws"
    assert model.training is training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert hooks(model) == 0


def test_under_autocast_the_row_itself_is_in_fp32(images: Tensor) -> None:
    model = vit()
    with torch.autocast("cpu", torch.bfloat16):
        heads = cls_attention_heads(model, images, 1)
    assert heads.dtype == torch.float32
    assert len(heads.unique()) > 0.9 * heads.numel(), "in bf16 many patches would tie"
    torch.testing.assert_close(heads, cls_attention_heads(model, images, 1), atol=1e-3, rtol=0)


def test_a_network_in_fp64_keeps_it(images: Tensor) -> None:
    row = cls_attention(vit().double(), images.double())
    assert row.dtype == torch.float64
    torch.testing.assert_close(row.float(), cls_attention(vit(), images), atol=1e-6, rtol=0)


def test_no_hook_stays_after_an_error(images: Tensor) -> None:
    model = vit()
    with pytest.raises(AssertionError, match="doesn't match model"):
        cls_attention(model, images[..., :24])
    assert hooks(model) == 0
    with pytest.raises(RuntimeError, match="mine"), watch_cls_attention(model):
        raise RuntimeError("mine")
    assert hooks(model) == 0


def test_only_one_row_of_the_attention_is_computed(images: Tensor) -> None:
    with torch.profiler.profile(record_shapes=True) as profile:
        cls_attention(vit(), images)
    shapes = [e.input_shapes[0] for e in profile.events() if e.name == "aten::softmax"]
    assert shapes == [[2, 3, 17]]


def test_rows_are_positive_and_leave_the_share_of_cls_to_cls(images: Tensor) -> None:
    row = cls_attention(vit(), images)
    assert row.shape == (2, 16)
    assert (row > 0).all()
    assert (row.sum(dim=1) < 1).all()


def test_a_masker_takes_the_row(images: Tensor) -> None:
    row = cls_attention(vit(), images)
    mask = Masker(Hint(show_max=0.2), ratio=(0.5, 0.5), probability=1.0)(row, step=0)
    assert mask.shape == (2, 16)
    assert (mask.sum(dim=1) == 7).all()


def test_our_own_backbones_are_read_too(images: Tensor) -> None:
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=48, depth=3, heads=3)
    backbone = build_backbone(config, image_size=32, channels=3)
    assert torch.equal(cls_attention(backbone, images), backbone(images).attention)
    assert torch.equal(
        cls_attention_heads(backbone, images, 1), backbone.attention_heads(images, 1)
    )
    with (
        pytest.raises(UserError, match=r"gives its attention itself: model\(images\).attention"),
        watch_cls_attention(backbone),
    ):
        pass


def test_a_compiled_network_is_read_uncompiled(images: Tensor) -> None:
    model = vit()
    compiled = torch.compile(model, backend="eager")
    compiled(images)
    assert isinstance(compiled, nn.Module)
    assert torch.equal(cls_attention(compiled, images), cls_attention(model, images))


def test_a_pass_that_was_not_watched_is_one_line(images: Tensor) -> None:
    with watch_cls_attention(vit()) as watched:
        pass
    with pytest.raises(UserError, match="made no forward pass that could be watched"):
        _ = watched.mean


def test_the_only_network_inside_of_a_module_is_found_and_two_are_refused(images: Tensor) -> None:
    model = vit()
    row = cls_attention(nn.Sequential(nn.Identity(), model), images)
    assert torch.equal(row, cls_attention(model, images))
    with pytest.raises(UserError, match="Sequential has 2 vision transformers; give the one"):
        cls_attention(nn.Sequential(model, vit()), images)


def test_an_unknown_network_is_one_line_that_says_what_is_supported(images: Tensor) -> None:
    with pytest.raises(UserError) as raised:
        cls_attention(timm.create_model("resnet18"), images)
    assert str(raised.value) == (
        "[CLS] attention of ResNet cannot be read; give a network of timm (VisionTransformer, Eva, "
        "Beit) or of transformers (vit, deit, vit_msn, dinov2, dinov2_with_registers, dinov3_vit)"
    )


def test_the_package_names_the_functions() -> None:
    assert attmask.cls_attention is cls_attention
    assert {"cls_attention", "cls_attention_heads", "watch_cls_attention"} <= set(attmask.__all__)
