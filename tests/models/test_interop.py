import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torchvision.transforms import v2

from attmask.data.config import IMAGENET_MEAN, IMAGENET_STD, DataConfig
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel
from attmask.hardware import Precision
from attmask.models.importing.architecture import _heads
from attmask.models.interop import import_backbone, input_format
from tests.photographs import photographs
from tests.real_data import FOLDER, needs
from tests.reference import reference_network, tensors

GOLDEN = tensors("network")
ONES = torch.ones(3, 3)


def network(**parts: Any) -> VisionTransformer:
    """A small timm network with weights far from their start, so that each of them matters."""
    arguments: dict[str, Any] = {
        "img_size": 32,
        "patch_size": 8,
        "embed_dim": 64,
        "depth": 2,
        "num_heads": 1,
        "num_classes": 0,
    }
    vit = VisionTransformer(**{**arguments, **parts})
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=draw))
    return vit.eval()


def pictures(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def saved(folder: Path, content: object, name: str = "network.pth") -> str:
    torch.save(content, folder / name)
    return str(folder / name)


def theirs(prefix: str = "") -> dict[str, Tensor]:
    """The golden weights in the reference's own names: backbone.*, head.*."""
    found = {k.removeprefix("w."): v for k, v in GOLDEN.items() if k.startswith("w.")}
    return {f"{prefix}{name}": tensor for name, tensor in found.items()}


def assert_golden(path: str, **options: Any) -> None:
    backbone = import_backbone(path, **options)
    with torch.no_grad():
        plain = backbone(GOLDEN["images"])
        masked = backbone(GOLDEN["images"], GOLDEN["mask"].flatten(1))
        local = backbone(GOLDEN["local_images"])
    for ours, name in ((plain, "tokens"), (masked, "masked_tokens"), (local, "local_tokens")):
        every = torch.cat([ours.cls[:, None], ours.patches], dim=1)
        torch.testing.assert_close(every, GOLDEN[name], rtol=1e-5, atol=1e-5)
    ours_now = reference_network().backbone.state_dict()
    assert all(torch.equal(t, ours_now[name]) for name, t in backbone.state_dict().items())


# --- the reference's files

WRAPPED: dict[str, Mapping[str, Any]] = {
    "teacher beside student": {
        "student": {f"module.{k}": v + 1 for k, v in theirs().items()},
        "teacher": theirs(),
        "epoch": 3,
        "args": argparse.Namespace(arch="vit_small", lr=0.1),
    },
    "teacher of several processes": {"teacher": theirs("module.")},
    "state dict": {"state_dict": theirs("module.")},
    "model": {"model": theirs()},
    "names of both": {
        **{f"student.{k}": v + 1 for k, v in theirs().items()},
        **theirs("teacher."),
    },
    "plain": theirs(),
}


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_file_of_the_reference_gives_the_references_tokens(kind: str, tmp_path: Path) -> None:
    assert_golden(saved(tmp_path, WRAPPED[kind]), heads=3)


def test_safetensors_that_say_their_heads_need_no_argument(tmp_path: Path) -> None:
    weights = {k: v.contiguous() for k, v in theirs("teacher.").items() if "last_layer2" not in k}
    save_file(weights, tmp_path / "x.safetensors", metadata={"heads": "3"})
    assert_golden(str(tmp_path / "x.safetensors"))


def test_a_checkpoint_that_says_its_heads_needs_no_argument(tmp_path: Path) -> None:
    assert_golden(saved(tmp_path, {"teacher": theirs(), "heads": 3}))


def test_heads_that_cannot_be_told_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"width 48, which is not a multiple of 64.*give heads="):
        import_backbone(saved(tmp_path, theirs()))
    with pytest.raises(UserError, match="not a multiple of 5 heads"):
        import_backbone(saved(tmp_path, theirs()), heads=5)


@pytest.mark.parametrize(
    "name",
    [
        "vit_tiny_patch16_224",
        "vit_large_patch16_224",
        "vit_huge_patch14_224",
        "vit_giant_patch14_224",
        "vit_gigantic_patch14_224",
        "vit_small_patch14_dinov2",
    ],
)
def test_heads_are_as_many_as_networks_of_this_width_have(name: str) -> None:
    with torch.device("meta"):
        vit = timm.create_model(name, depth=1)
    assert isinstance(vit, VisionTransformer)
    attention = vit.blocks[0].get_submodule("attn")
    assert attention.num_heads == _heads(Path("x"), vit.embed_dim, None)


def test_weights_of_a_run_are_refused_because_the_run_says_more(tmp_path: Path) -> None:
    ours = {f"teacher.backbone.vit.{k}": v for k, v in network().state_dict().items()}
    student = {k.replace("teacher", "student"): v + 1 for k, v in ours.items()}
    save_file({**ours, **student}, tmp_path / "weights.safetensors")
    assert "give RUN itself" in refused(str(tmp_path / "weights.safetensors"))
    assert "give RUN itself" in refused(str(tmp_path / "weights.safetensors"), heads=1)
    told = import_backbone(tmp_path / "weights.safetensors", heads=1, positions="size")
    assert told.positions == "size"


# --- timm's and others' files

PARTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "two heads": {"embed_dim": 128, "num_heads": 2},
    "grey, other patches, narrow MLP": {"in_chans": 1, "patch_size": 16, "mlp_ratio": 1.703125},
    "layer scale, no bias": {"init_values": 0.1, "qkv_bias": False},
    "registers": {"reg_tokens": 3},
    "registers without a position": {"reg_tokens": 4, "no_embed_class": True},
    "no position of [CLS]": {"no_embed_class": True},
    "with a classifier": {"num_classes": 5},
}
LIKE_DINO = {"plain", "two heads", "grey, other patches, narrow MLP", "with a classifier"}
"""Those that DINO, iBOT and AttMask could have trained: no layer scale, no registers."""


@pytest.mark.parametrize("kind", PARTS)
def test_the_architecture_is_told_by_the_shapes(kind: str, tmp_path: Path) -> None:
    vit = network(**PARTS[kind])
    backbone = import_backbone(saved(tmp_path, vit.state_dict()))
    images = photographs(2, vit.patch_embed.proj.in_channels, 32, 32)
    with torch.no_grad():
        expected, tokens = vit.forward_features(images), backbone(images)
    torch.testing.assert_close(tokens.cls, expected[:, 0], rtol=1e-5, atol=1e-5)
    patches = expected[:, vit.num_prefix_tokens :]
    torch.testing.assert_close(tokens.patches, patches, rtol=1e-5, atol=1e-5)
    assert not backbone.training
    is_like_dino = kind in LIKE_DINO
    assert backbone.positions == ("reference" if is_like_dino else "size")
    assert input_format(backbone).image_size == 32


def test_half_precision_is_read_as_single(tmp_path: Path) -> None:
    vit = network()
    backbone = import_backbone(saved(tmp_path, vit.half().state_dict()))
    assert {p.dtype for p in backbone.parameters()} == {torch.float32}


def test_importing_draws_no_random_numbers(tmp_path: Path) -> None:
    path = saved(tmp_path, network().state_dict())
    before = torch.get_rng_state()
    import_backbone(path)
    assert torch.equal(torch.get_rng_state(), before)


def dinov2(vit: VisionTransformer, registers: bool) -> dict[str, Tensor]:
    """The weights of a timm network as DINOv2 stores them, its blocks in groups of two."""
    state = dict(vit.state_dict())
    if registers:
        state["register_tokens"] = state.pop("reg_token")
        placed = pictures(1, 1, 64)  # no constant: norms would not see it
        state["cls_token"] = state["cls_token"] - placed
        state["pos_embed"] = torch.cat([placed, state["pos_embed"]], dim=1)
    state["mask_token"] = torch.full((1, 64), 0.5)
    grouped = {}
    for name, tensor in state.items():
        first, _, rest = name.removeprefix("blocks.").partition(".")
        inner = f"blocks.{int(first) // 2}.{first}.{rest}" if "blocks." in name else name
        grouped[inner] = tensor
    return grouped


@pytest.mark.parametrize("registers", [True, False])
def test_dinov2s_own_names_are_understood(registers: bool, tmp_path: Path) -> None:
    parts = {"reg_tokens": 4, "no_embed_class": True} if registers else {}
    vit = network(depth=4, init_values=0.3, patch_size=14, img_size=56, **parts)
    weights = {f"backbone.{k}": v for k, v in dinov2(vit, registers).items()}
    weights["dino_head.mlp.0.weight"] = torch.ones(3, 3)
    backbone = import_backbone(saved(tmp_path, {"teacher": weights}))
    images = photographs(2, 3, 56, 56)
    with torch.no_grad():
        expected = vit.forward_features(images)
        torch.testing.assert_close(backbone(images).cls, expected[:, 0], rtol=1e-5, atol=1e-5)
    assert backbone.mask_token.tolist() == [[0.5] * 64]
    assert backbone.positions == ("size" if registers else "reference")


def test_a_decoder_and_its_mask_token_are_left_out(tmp_path: Path) -> None:
    mae = {
        **network().state_dict(),
        "mask_token": torch.ones(1, 1, 16),
        "decoder_pos_embed": torch.ones(1, 17, 16),
        "decoder_blocks.0.norm1.weight": torch.ones(16),
    }
    backbone = import_backbone(saved(tmp_path, {"model": mae}))
    assert backbone.mask_token.abs().max() == 0


def test_positions_are_resized_as_asked_or_as_the_file_says(tmp_path: Path) -> None:
    state = network().state_dict()
    path = saved(tmp_path, state)
    assert import_backbone(path).positions == "reference"
    assert import_backbone(path, positions="size").positions == "size"
    assert import_backbone(saved(tmp_path, {"model": state, "positions": "size"})).positions == (
        "size"
    )
    save_file(state, tmp_path / "x.safetensors", metadata={"positions": "size"})
    assert import_backbone(tmp_path / "x.safetensors").positions == "size"
    assert import_backbone(tmp_path / "x.safetensors", positions="reference").positions == (
        "reference"
    )
    save_file(state, tmp_path / "x.safetensors", metadata={"positions": "cubic"})
    with pytest.raises(UserError, match="says positions=cubic; wanted size or reference"):
        import_backbone(tmp_path / "x.safetensors")


NEIGHBOURS: dict[str, dict[str, Tensor]] = {
    "nothing": {},
    "a DINO head": {"head.mlp.0.weight": ONES, "head.last_layer.weight_v": ONES},
    "a classifier": {"head.weight": torch.ones(5, 64), "head.bias": torch.ones(5)},
    "iBOT's mask token": {"masked_embed": torch.full((1, 64), 0.5)},
    "DINOv2's mask token and heads": {
        "mask_token": torch.full((1, 64), 0.5),
        "dino_head.mlp.0.weight": ONES,
        "ibot_head.last_layer.weight_v": ONES,
    },
    "MAE's decoder": {"mask_token": torch.ones(1, 1, 16), "decoder_norm.weight": torch.ones(16)},
}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"init_values": 0.3, "patch_size": 14, "img_size": 56},
        {"init_values": 0.3},
        {"reg_tokens": 4, "no_embed_class": True},
    ],
    ids=["DINO, iBOT, a supervised ViT, MAE", "DINOv2", "DeiT-III", "registers"],
)
def test_the_same_weights_give_the_same_features_whatever_lies_beside_them(
    parts: dict[str, Any], tmp_path: Path
) -> None:
    vit = network(**parts)
    side = 6 * vit.patch_embed.patch_size[0]  # more than the four patches of the training
    images = pictures(2, 3, side, side)
    features = []
    for neighbours in NEIGHBOURS.values():
        state = {**vit.state_dict(), **neighbours}
        prefixed = {f"module.backbone.{name}": tensor for name, tensor in state.items()}
        contents = (state, {"teacher": prefixed}, {"state_dict": state}, {"model": prefixed})
        features += [import_backbone(saved(tmp_path, content)) for content in contents]
        save_file({k: t.clone() for k, t in state.items()}, tmp_path / "x.safetensors")
        features.append(import_backbone(tmp_path / "x.safetensors"))
    with torch.no_grad():
        first, *others = (backbone(images).cls for backbone in features)
    assert len(others) == 5 * len(NEIGHBOURS) - 1
    assert all(torch.equal(other, first) for other in others)


# --- on photographs, as evaluations read them


def timms_features(vit: VisionTransformer, files: list[Path]) -> dict[str, Tensor]:
    """torchvision's crops through timm's own forward pass."""
    crop = v2.Compose(
        [
            v2.Resize(256, v2.InterpolationMode.BICUBIC),
            v2.CenterCrop(224),
            v2.PILToTensor(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(IMAGENET_MEAN, IMAGENET_STD),
        ]
    )
    images = torch.stack([crop(Image.open(file).convert("RGB")) for file in files])
    before_norm: list[Tensor] = []
    hook = vit.norm.register_forward_hook(lambda _, given, __: before_norm.append(given[0]))
    with torch.no_grad():
        after_norm = vit.forward_features(images)
    hook.remove()
    return {
        "cls": after_norm[:, 0],
        "gap": before_norm[0][:, 1:].mean(dim=1),
        "gap, normed": after_norm[:, 1:].mean(dim=1),
    }


@needs("photos")
def test_features_of_photographs_equal_a_plain_timm_forward(tmp_path: Path) -> None:
    torch.manual_seed(0)
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    assert isinstance(vit, VisionTransformer)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    (tmp_path / "few").mkdir()
    for file in sorted((FOLDER / "photos").glob("*.JPEG"))[:8]:
        (tmp_path / "few" / file.name).symlink_to(file)
    source = open_images(tmp_path / "few").train
    expected = timms_features(vit, [Path(source.place(i)) for i in range(len(source))])
    backbone = import_backbone(saved(tmp_path, vit.state_dict()))
    model = FrozenModel("timm's", backbone, input_format(backbone).image_size, DataConfig())
    cpu = torch.device("cpu")
    extractor = FeatureExtractor(
        cpu, Precision.choose("fp32", cpu), tmp_path / "cache", batch_size=3
    )
    for name, readout in {
        "cls": Embedding(),
        "gap": Embedding(token="gap"),
        "gap, normed": Embedding(token="gap", norm_gap=True),
    }.items():
        features = extractor.features(model, source, CenterCrop(224), readout).vectors
        assert expected[name].std() > 0.05
        torch.testing.assert_close(features, expected[name], rtol=1e-5, atol=1e-5)


# --- what is refused


def refused(path: str, **options: Any) -> str:
    with pytest.raises(UserError) as caught:
        import_backbone(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


class Trap:
    """What a pickle can hold: code that runs when it is opened."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("trapped",)


def test_a_pickle_that_would_run_code_is_refused_and_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "could run any code" in refused(saved(tmp_path, {"model": Trap()}))
    assert "could run any code" in refused(saved(tmp_path, nn.Linear(2, 2)))
    assert not (tmp_path / "trapped").exists()


@settings(max_examples=40)
@given(cut=st.integers(0, 4000), noise=st.binary(max_size=8))
def test_a_damaged_file_is_refused(
    cut: int, noise: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged")
    path = Path(saved(folder, {"a": torch.ones(40, 20)}))
    path.write_bytes(path.read_bytes()[:cut] + noise)
    refused(str(path))
    save_file({"a": torch.ones(40, 20)}, folder / "x.safetensors")
    path = folder / "x.safetensors"
    path.write_bytes(path.read_bytes()[: cut % 3000] + noise)
    refused(str(path))


def changed(**replaced: Tensor | None) -> dict[str, Tensor]:
    """A plain network's weights with some replaced or, where None, left out."""
    names = {name.replace("__", "."): tensor for name, tensor in replaced.items()}
    everything: dict[str, Tensor | None] = {**network().state_dict(), **names}
    return {name: tensor for name, tensor in everything.items() if tensor is not None}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"conv1.weight": torch.ones(3, 3)}, "no cls_token: found conv1.weight; wanted a plain"),
        ({}, "no weights: found nothing"),
        ({"student": {}, "epoch": 3}, "no weights: found student, epoch; wanted"),
        (torch.ones(3), "no weights: found Tensor"),
        (changed(norm_pre__weight=torch.ones(64)), "does not have: norm_pre.weight; wanted"),
        (changed(rope=torch.ones(1), a=torch.ones(1)), "does not have: rope, a; wanted"),
        (changed(norm__weight=None), "lacks: norm.weight; wanted"),
        (changed(cls_token=None), "no cls_token"),
        (changed(norm__bias=torch.ones(63)), "does not fit the others: norm.bias"),
        (changed(pos_embed=torch.ones(1, 15, 64)), "15 positions, which is no square grid"),
        (changed(pos_embed=torch.ones(16, 64)), r"no plain ViT has: .*pos_embed \(16, 64\)"),
        (changed(patch_embed__proj__weight=torch.ones(64, 3, 8, 4)), "shapes that no plain ViT"),
        (changed(patch_embed__proj__weight=torch.ones(0)), "shapes that no plain ViT"),
        (changed(patch_embed__proj__weight=torch.ones(0, 3, 8, 8)), "shapes that no plain ViT"),
        (changed(backbone__norm__bias=torch.ones(64)), "norm.bias twice"),
    ],
)
def test_what_is_no_plain_transformer_is_refused_in_one_line(
    content: object, says: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, content)
    refused(path)
    with pytest.raises(UserError, match=says):
        import_backbone(path)


def test_what_is_neither_a_file_nor_a_name_is_refused(tmp_path: Path) -> None:
    assert "no file" in refused(str(tmp_path / "nothing.pth"))
    assert "nor a network of timm" in refused("vit_smal")
    assert "(Invalid pretrained tag (nope)" in refused("vit_small_patch16_224.nope")
    assert "not a plain vision transformer" in refused("resnet18")
    assert "not a plain vision transformer" in refused("vit_base_patch16_siglip_224")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (FileNotFoundError("cannot find\nthe files"), "cannot be fetched; connect"),
        (RuntimeError("No pretrained weights exist\nmore"), r"\(No pretrained weights exist\)"),
    ],
)
def test_a_hub_that_does_not_give_the_weights_is_one_line(
    fault: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = timm.create_model

    def offline(name: str, pretrained: bool = False, **options: Any) -> nn.Module:
        if pretrained:
            raise fault
        return create(name, **options)

    monkeypatch.setattr(timm, "create_model", offline)
    refused("vit_small_patch16_224.dino")
    with pytest.raises(UserError, match=says):
        import_backbone("vit_small_patch16_224.dino")


@pytest.mark.parametrize(
    ("name", "positions"),
    [
        ("vit_tiny_patch16_224", "size"),
        ("vit_small_patch16_224.dino", "reference"),
        ("vit_small_patch14_dinov2.lvd142m", "reference"),
        ("vit_small_patch14_reg4_dinov2.lvd142m", "size"),
    ],
)
def test_a_network_of_timm_comes_with_what_its_images_look_like(
    name: str, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = timm.create_model

    def without_weights(name: str, pretrained: bool = False, **options: Any) -> nn.Module:
        return create(name, depth=1, **options)

    monkeypatch.setattr(timm, "create_model", without_weights)
    backbone = import_backbone(name)
    assert backbone.positions == positions
    known = timm.get_pretrained_cfg(name)
    assert known is not None
    assert input_format(backbone).mean == known.mean
    assert input_format(backbone).image_size == known.input_size[1]
