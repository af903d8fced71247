"""The format of transformers: a folder for `AutoModel` and `AutoImageProcessor`.

A plain network is a `ViTModel`, one with layer scale a `Dinov2Model`, one with registers a
`Dinov2WithRegistersModel`. The files have the names that all versions of transformers read.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from timm.layers import Attention, Mlp
from torch import Tensor, nn

from attmask.errors import UserError
from attmask.exporting.format import Forward
from attmask.exporting.huggingface_names import block_tensors, embeddings
from attmask.exporting.subject import Subject
from attmask.mask import Grid
from attmask.models.blocks import Block

Kind = Literal["vit", "dinov2", "dinov2_with_registers"]
_CLASSES = {
    "vit": "ViT",
    "dinov2": "Dinov2",
    "dinov2_with_registers": "Dinov2WithRegisters",
}
_BICUBIC = 3  # the number of PIL's resampling
_INSTEAD = "use --format timm, onnx or torch"


class AsHuggingFace:
    """A folder that `AutoModel.from_pretrained` takes, or `AutoModelForImageClassification`."""

    library = "transformers"
    packages = ("transformers", "safetensors")

    def takes_other_sizes(self, subject: Subject) -> bool:
        """Its DINOv2 with registers antialiases resized positions, the other classes do not."""
        has_registers = _kind(subject) == "dinov2_with_registers"
        return subject.backbone.positions == ("size" if has_registers else "no-antialias")

    def write(self, subject: Subject, folder: Path) -> None:
        """Write weights, config.json and preprocessor_config.json."""
        _refuse_others(subject)
        grid = subject.trained_grid if self.takes_other_sizes(subject) else subject.own_grid()
        tensors = {
            name: tensor.detach().cpu().float().clone().contiguous()
            for name, tensor in _tensors(subject, grid)
        }
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        for name, content in (
            ("config.json", _config(subject, grid)),
            ("preprocessor_config.json", _preprocessing(subject)),
        ):
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")

    def open(self, subject: Subject, folder: Path) -> Forward:
        """The network as transformers loads it; its attention comes from a second, eager pass."""
        try:
            from transformers import AutoModel, AutoModelForImageClassification
        except ImportError as fault:
            raise UserError(
                "--format hf needs transformers to verify the export; run: "
                "pip install 'attmask[hf]'"
            ) from fault
        auto = AutoModel if subject.classifier is None else AutoModelForImageClassification
        with _quiet():
            model = auto.from_pretrained(folder, local_files_only=True).eval()
        prefix, layer = subject.backbone.prefix, subject.backbone.layer
        more = {}
        if self.takes_other_sizes(subject) and _kind(subject) == "vit":
            more = {"interpolate_pos_encoding": True}  # ViTModel refuses other sizes without it

        def forward(images: Tensor) -> dict[str, Tensor]:
            model.set_attn_implementation("sdpa")
            tokens = model.base_model(images, **more).last_hidden_state
            outputs = {"cls": tokens[:, 0], "patches": tokens[:, prefix:]}
            if subject.classifier is not None:
                outputs["logits"] = model(images, **more).logits
            model.set_attn_implementation("eager")
            rows = model.base_model(images, output_attentions=True, **more).attentions[layer]
            outputs["attention"] = rows[:, :, 0, prefix:].mean(dim=1)
            return outputs

        return forward

    def usage(self, subject: Subject, named: str) -> str:
        """Load it and its image processor."""
        named = named.removeprefix("hf-hub:")
        auto = "AutoModelForImageClassification" if subject.classes else "AutoModel"
        what = "logits" if subject.classes else "last_hidden_state"
        return (
            f"from PIL import Image\nfrom transformers import AutoImageProcessor, {auto}\n\n"
            f'processor = AutoImageProcessor.from_pretrained("{named}")\n'
            f'model = {auto}.from_pretrained("{named}")\n'
            f'inputs = processor(Image.open("image.jpg").convert("RGB"), return_tensors="pt")\n'
            f"{what} = model(**inputs).{what}\n"
        )


def _kind(subject: Subject) -> Kind:
    block, classifier = subject.backbone.blocks[0], subject.classifier
    if subject.backbone.prefix > 1:
        return "dinov2_with_registers"
    # transformers' ViT classifies [CLS] alone, its DINOv2 [CLS] and the mean of the patches.
    reads_more = classifier is not None and classifier.readout.token != "cls"
    return "dinov2" if reads_more or not isinstance(block.ls1, nn.Identity) else "vit"


def _tensors(subject: Subject, grid: Grid) -> Iterator[tuple[str, Tensor]]:
    kind, classifier = _kind(subject), subject.classifier
    below = "" if classifier is None else f"{kind}."
    as_dinov2 = kind != "vit"
    for name, tensor in embeddings(subject, grid, has_registers=kind == "dinov2_with_registers"):
        yield f"{below}embeddings.{name}", tensor
    if as_dinov2:
        yield f"{below}embeddings.mask_token", subject.backbone.mask_token
    for number, block in enumerate(subject.backbone.blocks):
        assert isinstance(block, Block)
        for name, tensor in block_tensors(block, as_dinov2=as_dinov2):
            yield f"{below}encoder.layer.{number}.{name}", tensor
    for name in ("weight", "bias"):
        yield f"{below}layernorm.{name}", subject.vit.norm.get_parameter(name)
    if classifier is not None:
        yield "classifier.weight", _classifier_weight(subject, kind)
        yield "classifier.bias", classifier.bias
    elif kind == "vit":  # the pooler that AutoModel adds gives [CLS] as it is
        yield "pooler.dense.weight", torch.eye(subject.backbone.width)
        yield "pooler.dense.bias", torch.zeros(subject.backbone.width)


def _classifier_weight(subject: Subject, kind: Kind) -> Tensor:
    """The weight for what the class of transformers reads; what ours does not read counts 0."""
    assert subject.classifier is not None
    weight, token = subject.classifier.weight, subject.classifier.readout.token
    if kind == "vit" or token == "cls+gap":
        return weight
    nothing = torch.zeros_like(weight)
    return torch.cat([weight, nothing] if token == "cls" else [nothing, weight], dim=1)


def _config(subject: Subject, grid: Grid) -> dict[str, Any]:
    backbone, kind = subject.backbone, _kind(subject)
    block = backbone.blocks[0]
    assert isinstance(block.attn, Attention)
    hidden = int(block.mlp.get_parameter("fc1.weight").shape[0])
    task = "ForImageClassification" if subject.classifier is not None else "Model"
    config: dict[str, Any] = {
        "architectures": [f"{_CLASSES[kind]}{task}"],
        "model_type": kind,
        "hidden_size": backbone.width,
        "num_hidden_layers": backbone.depth,
        "num_attention_heads": backbone.heads[0],
        "hidden_act": "gelu",
        "layer_norm_eps": block.norm1.eps,
        "image_size": grid[0] * backbone.patch_size,
        "patch_size": backbone.patch_size,
        "num_channels": backbone.channels,
        "qkv_bias": block.attn.qkv.bias is not None,
    }
    if kind == "vit":
        config |= {"intermediate_size": hidden, "pooler_act": "linear"}
    else:
        if hidden % backbone.width:
            raise UserError(
                f"{subject.model.name} has an MLP of width {hidden}, and transformers' DINOv2 "
                f"wants a multiple of {backbone.width}; {_INSTEAD}"
            )
        config |= {"mlp_ratio": hidden // backbone.width, "layerscale_value": 1.0}
    if kind == "dinov2_with_registers":
        config["num_register_tokens"] = backbone.prefix - 1
    if subject.classifier is not None:
        names = [str(name) for name in subject.classes]
        several = subject.classifier.multi_label
        config |= {
            "id2label": {str(number): name for number, name in enumerate(names)},
            "label2id": {name: number for number, name in enumerate(names)},
            "problem_type": f"{'multi' if several else 'single'}_label_classification",
        }
    return config


def _preprocessing(subject: Subject) -> dict[str, Any]:
    return {
        "image_processor_type": "BitImageProcessor",
        "do_convert_rgb": subject.backbone.channels == 3,
        "do_resize": True,
        "size": {"shortest_edge": subject.shorter_side},
        "resample": _BICUBIC,
        "do_center_crop": True,
        "crop_size": {"height": subject.image_size, "width": subject.image_size},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": subject.mean,
        "image_std": subject.std,
    }


def _refuse_others(subject: Subject) -> None:
    """Raise an error for networks that no class of transformers computes."""
    vit, blocks = subject.vit, subject.backbone.blocks
    norms = [vit.norm, *(norm for block in blocks for norm in (block.norm1, block.norm2))]
    epsilons = {getattr(norm, "eps", None) for norm in norms}
    attentions = [block.attn for block in blocks if isinstance(block.attn, Attention)]
    plain = nn.Identity
    reasons = {
        "a norm before its blocks": not isinstance(vit.norm_pre, plain),
        "a norm of its patches": not isinstance(vit.patch_embed.norm, plain),
        "no final norm": not isinstance(vit.norm, nn.LayerNorm),
        "norms that are no layer norms": not all(isinstance(n, nn.LayerNorm) for n in norms),
        "several epsilons in its norms": len(epsilons) > 1,
        "query and key norms": not all(isinstance(a.q_norm, plain) for a in attentions),
        "a norm or gate in its attention": not all(
            isinstance(a.norm, plain) and a.gate is None for a in attentions
        ),
        "an attention of another width": any(
            a.attn_dim != subject.backbone.width or a.proj.bias is None for a in attentions
        ),
        "another MLP": not all(
            type(block.mlp) is Mlp
            and type(block.mlp.act) is nn.GELU
            and block.mlp.act.approximate == "none"
            and isinstance(block.mlp.norm, plain)
            for block in blocks
        ),
    }
    if found := [reason for reason, holds in reasons.items() if holds]:
        raise UserError(
            f"{subject.model.name} has {found[0]}, which neither ViTModel nor Dinov2Model of "
            f"transformers has; {_INSTEAD}"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the progress bar and the notes of transformers."""
    from transformers.utils import logging as notes

    had_bar, level = notes.is_progress_bar_enabled(), notes.get_verbosity()
    notes.disable_progress_bar()
    notes.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        notes.set_verbosity(level)
        if had_bar:
            notes.enable_progress_bar()
