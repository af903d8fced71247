from pathlib import Path

import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer

from attmask import checkpoint
from attmask.checkpoint import Checkpoint
from attmask.data.sources import IMAGENET_MEAN
from attmask.errors import UserError
from attmask.evaluation.reference import open_reference
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone

TINY = BackboneConfig(name="vit_tiny_patch16_224", width=24, depth=2, heads=2, patch_size=8)


def shaken(seed: int) -> Backbone:
    torch.manual_seed(seed)
    backbone = build_backbone(TINY, image_size=32, channels=3)
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return backbone


def test_a_run_can_be_the_reference(tmp_path: Path) -> None:
    teacher = shaken(3)
    weights = {f"teacher.backbone.{k}": v for k, v in teacher.state_dict().items()}
    student = {k.replace("teacher", "student"): v + 1 for k, v in weights.items()}
    (tmp_path / "config.yaml").write_text(
        "views: {global_size: 32}\ndata: {channels: 3}\nmasking: {layer: 1}\n"
        "backbone: {name: vit_tiny_patch16_224, width: 24, depth: 2, heads: 2, patch_size: 8}\n"
    )
    with pytest.raises(UserError, match="has no checkpoint yet"):
        open_reference(str(tmp_path))
    tensors = {"weights": {**weights, **student}}
    checkpoint.save(tmp_path / "checkpoints", Checkpoint(1, tensors, {}), keep=1)
    found = open_reference(str(tmp_path))
    assert found.digest == open_reference(str(tmp_path / "checkpoints" / "step-00000001")).digest
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        expected = teacher(images).attention  # of the last block, whatever the run masked by
        torch.testing.assert_close(found.backbone(images).attention, expected)
    assert found.image_size == 32
    (tmp_path / "config.yaml").write_text("views: {}\n")
    with pytest.raises(UserError, match="damaged or of another version"):
        open_reference(str(tmp_path))


def test_a_reference_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="neither a file nor a network of timm"):
        open_reference(str(tmp_path / "nowhere"))


@pytest.mark.parametrize(("channels", "mean"), [(3, IMAGENET_MEAN), (1, (0.459,))])
def test_a_file_says_nothing_of_its_pixels_so_they_are_imagenets(
    channels: int, mean: tuple[float, ...], tmp_path: Path
) -> None:
    vit = VisionTransformer(
        img_size=32, patch_size=8, in_chans=channels, embed_dim=64, depth=1, num_heads=1
    )
    torch.save(vit.state_dict(), tmp_path / "x.pth")
    found = open_reference(str(tmp_path / "x.pth"))
    assert found.data.mean == mean
    assert (found.data.channels, found.image_size) == (channels, 32)


def test_a_network_of_timm_is_shown_the_pixels_it_was_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = timm.create_model

    def without_weights(name: str, pretrained: bool = False, num_classes: int = 0) -> object:
        return create(name, depth=1, num_classes=num_classes)

    monkeypatch.setattr(timm, "create_model", without_weights)
    assert open_reference("vit_tiny_patch16_224").data.mean == (0.5, 0.5, 0.5)
    assert open_reference("timm:vit_small_patch16_224.dino").data.mean == IMAGENET_MEAN
