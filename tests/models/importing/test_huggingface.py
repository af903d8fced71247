"""Directories of transformers: the same tokens as transformers' own forward pass."""

import json
from pathlib import Path
from typing import Any, cast

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.models.interop import Imported, import_network
from tests.photographs import photographs

transformers = pytest.importorskip("transformers")

SMALL: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 32,
    "patch_size": 8,
}
VIT = {**SMALL, "intermediate_size": 80}
DINOV2 = {**SMALL, "mlp_ratio": 2}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "ViTModel": ("ViTConfig", VIT),
    "ViTForImageClassification": ("ViTConfig", VIT),
    "ViTForMaskedImageModeling": ("ViTConfig", {**VIT, "encoder_stride": 8}),
    "ViTModel without biases": ("ViTConfig", {**VIT, "qkv_bias": False}),
    "ViTModel of grey images, another eps": (
        "ViTConfig",
        {**VIT, "num_channels": 1, "layer_norm_eps": 1e-2},
    ),
    "Dinov2Model": ("Dinov2Config", DINOV2),
    "Dinov2ForImageClassification": ("Dinov2Config", DINOV2),
    "Dinov2WithRegistersModel": ("Dinov2WithRegistersConfig", DINOV2),
    "Dinov2WithRegistersForImageClassification": ("Dinov2WithRegistersConfig", DINOV2),
}


def network(kind: str) -> Any:
    """A small network of transformers with weights far from their start."""
    config, settings = KINDS[kind]
    made = getattr(transformers, kind.split()[0])(getattr(transformers, config)(**settings))
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    return made.eval()


def saved(made: Any, folder: Path, **options: Any) -> Path:
    made.save_pretrained(folder, **options)
    return folder


def their_tokens(made: nn.Module, images: Tensor) -> Tensor:
    """All tokens after the last norm, of the network without its head."""
    trunk = next(
        (
            getattr(made, name)
            for name in ("vit", "dinov2", "dinov2_with_registers")
            if hasattr(made, name)
        ),
        made,
    )
    more = {"interpolate_pos_encoding": True} if "ViT" in type(trunk).__name__ else {}
    return cast(Tensor, trunk(images, **more).last_hidden_state)


def assert_equal(made: nn.Module, found: Imported, *sizes: tuple[int, int]) -> None:
    for size in sizes:
        images = photographs(2, found.backbone.channels, *size)
        with torch.no_grad():
            ours, theirs = found.backbone.all_tokens(images), their_tokens(made, images)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_directory_gives_the_tokens_of_transformers_at_any_size(
    kind: str, tmp_path: Path
) -> None:
    made = network(kind)
    found = import_network(saved(made, tmp_path))
    assert_equal(made, found, (32, 32), (48, 48), (40, 24))
    assert found.detection.layout == f"Hugging Face {kind.split()[0]}"
    assert found.detection.missing == ()
    assert found.backbone.heads == (3, 3)


def test_a_masked_autoencoder_is_its_encoder_at_any_size(tmp_path: Path) -> None:
    config = transformers.ViTMAEConfig(
        **VIT, mask_ratio=0.0, decoder_hidden_size=16, decoder_num_attention_heads=2
    )
    made = transformers.ViTMAEForPreTraining(config).eval()
    found = import_network(saved(made, tmp_path))
    assert all(name.startswith("decoder.") for name in found.detection.left_out)
    for side in (32, 48):
        images, patches = photographs(2, 3, side, side), (side // 8) ** 2
        in_order = torch.arange(patches).expand(2, -1) / patches
        with torch.no_grad():
            ours = found.backbone.all_tokens(images)
            theirs = made.vit(images, noise=in_order, interpolate_pos_encoding=True)
        torch.testing.assert_close(ours, theirs.last_hidden_state, rtol=1e-5, atol=1e-5)


def test_sharded_and_pickled_weights_are_read_as_well(tmp_path: Path) -> None:
    made = network("Dinov2Model")
    sharded = saved(made, tmp_path / "sharded", max_shard_size="40KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    assert_equal(made, import_network(sharded), (32, 32))
    pickled = tmp_path / "pickled"
    saved(made, pickled)
    torch.save(load_file(pickled / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    assert_equal(made, import_network(pickled), (32, 32))


def test_a_state_dict_in_the_names_of_the_running_library_needs_no_directory(
    tmp_path: Path,
) -> None:
    for kind in ("ViTModel", "Dinov2Model", "Dinov2WithRegistersModel"):
        made = network(kind)
        torch.save(made.state_dict(), tmp_path / "alone.pth")
        assert_equal(made, import_network(tmp_path / "alone.pth", heads=3), (32, 32), (48, 48))


def test_the_file_of_a_directory_counts_as_the_directory(tmp_path: Path) -> None:
    made = network("ViTModel")
    found = import_network(saved(made, tmp_path) / "model.safetensors")
    assert_equal(made, found, (32, 32), (48, 48))


PROCESSORS: dict[str, tuple[dict[str, Any], int]] = {
    "crop": ({"size": {"shortest_edge": 36}, "crop_size": {"height": 24, "width": 24}}, 24),
    "no crop": (
        {"size": {"height": 40, "width": 40}, "crop_size": 24, "do_center_crop": False},
        40,
    ),
    "not a multiple of the patch": ({"size": 37}, 32),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_image_size_mean_and_std_come_from_the_image_processor(kind: str, tmp_path: Path) -> None:
    stated, size = PROCESSORS[kind]
    folder = saved(network("ViTForImageClassification"), tmp_path)
    stated = {**stated, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.5, 0.6, 0.7]}
    (folder / "preprocessor_config.json").write_text(json.dumps(stated))
    model = load_model(folder)
    assert model.image_size == size
    assert (model.data.mean, model.data.std) == ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    told = model.describe(size)
    assert told["layout"] == "Hugging Face ViTForImageClassification"
    assert (
        told["tensors"] == "30 used, 2 left out (classifier.bias, classifier.weight), none missing"
    )
    assert told["heads"] == 3


def test_positions_can_be_set_and_the_network_can_be_built_again(tmp_path: Path) -> None:
    folder = saved(network("ViTModel of grey images, another eps"), tmp_path)
    model = load_model(f"{folder}@positions=size")
    assert (model.backbone.positions, load_model(folder).backbone.positions) == (
        "size",
        "no-antialias",
    )
    again = model.blueprint.build(model.backbone.state_dict(), "memory").eval()
    images = photographs(2, 1, 48, 48)
    with torch.no_grad():
        assert torch.equal(again(images).cls, model.backbone(images).cls)


@pytest.mark.parametrize("registers", [4, 0])
def test_a_dinov3_gives_the_tokens_of_its_own_library(registers: int, tmp_path: Path) -> None:
    made = transformers.DINOv3ViTModel(
        transformers.DINOv3ViTConfig(**VIT, num_register_tokens=registers)
    )
    saved(made, tmp_path)
    assert_equal(made.eval(), import_network(tmp_path), (32, 32), (48, 64))


def test_a_dinov3_of_other_rotary_positions_is_refused(tmp_path: Path) -> None:
    config = transformers.DINOv3ViTConfig(**VIT, rope_theta=50.0)
    saved(transformers.DINOv3ViTModel(config), tmp_path)
    with pytest.raises(UserError, match="rope_theta=50"):
        import_network(tmp_path)


def test_a_network_of_the_hub_is_read_from_the_local_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = network("Dinov2Model")
    stored = tmp_path / "models--someone--dino"
    saved(made, stored / "snapshots" / ("0" * 40))
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("0" * 40)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for prefix in ("hf-hub:", "hf_hub:"):
        assert_equal(made, import_network(f"{prefix}someone/dino"), (32, 32), (48, 48))
    for name in ("hf-hub:someone/else", "hf-hub:no repository/at/all"):
        with pytest.raises(UserError) as caught:
            import_network(name)
        assert "\n" not in str(caught.value)


def broken(folder: Path, kind: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    weights = folder / "model.safetensors"
    if kind == "no JSON":
        (folder / "config.json").write_text("{")
    elif kind == "a list":
        (folder / "config.json").write_text("[1]")
    elif kind == "no weights":
        weights.unlink()
    elif kind == "an index that leaves the folder":
        index = {"weight_map": {"a": "../../elsewhere.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        weights.unlink()
    elif kind == "an index without its file":
        index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        weights.unlink()
    elif kind == "a mean that is none":
        stated = json.dumps({"image_mean": [10**400], "image_std": [1.0]})
        (folder / "preprocessor_config.json").write_text(stated)
    elif kind == "a missing tensor":
        tensors = load_file(weights)
        del tensors["encoder.layer.1.attention.attention.key.weight"]
        save_file(tensors, weights)
    else:
        key, _, value = kind.partition("=")
        (folder / "config.json").write_text(json.dumps({**config, key: json.loads(value)}))


BROKEN = {
    "no JSON": "it is not JSON",
    "a list": "not a JSON object",
    "no weights": "but no weights",
    "an index that leaves the folder": "is not a file beside it",
    "an index without its file": "there is no file",
    "a missing tensor": "but no blocks.1.attn.key.weight",
    'model_type="swin"': "kind swin, which cannot be imported; wanted vit",
    'hidden_act="relu"': "hidden_act=relu, which is not supported",
    "layer_norm_eps=-1": "layer_norm_eps=-1; wanted a small number",
    "num_attention_heads=7": "not a multiple of 7 heads",
    "a mean that is none": "wanted a list of numbers",
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_cannot_be_used_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    broken(saved(network("ViTModel"), tmp_path), kind)
    with pytest.raises(UserError) as caught:
        import_network(tmp_path)
    assert BROKEN[kind] in str(caught.value)
    assert "\n" not in str(caught.value)
