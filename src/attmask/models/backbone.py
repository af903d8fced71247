"""The backbone: a timm vision transformer with a mask token and the attention of `[CLS]`."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import timm
import timm.models.vision_transformer as timm_vit
import torch
from jaxtyping import Bool, Float, Float64
from timm.layers import Attention, PatchEmbed
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attmask.errors import UserError
from attmask.mask import Grid, Mask
from attmask.models.blocks import BRANCHES, Block, ChosenTokens
from attmask.models.positions import Resize, resize_positions
from attmask.models.pretrained import create_pretrained
from attmask.settings import Config, setting

_ADVICE = "use one of timm's vit_* or deit_* networks, e.g. vit_small_patch16_224"


class BackboneConfig(Config):
    """The vision transformer."""

    name: str = setting(
        "vit_small_patch16_224", "timm's name of the network", paper="ViT-S/16", max_length=100
    )
    patch_size: int | None = setting(
        None, "side of a patch in pixels (null: the one in the network's name)", paper="16", ge=1
    )
    width: int | None = setting(
        None, "embedding width (null: the network's own)", paper="384", ge=1, le=2**15
    )
    depth: int | None = setting(
        None, "number of blocks (null: the network's own)", paper="12", ge=1, le=200
    )
    heads: int | None = setting(None, "attention heads (null: the network's own)", paper="6", ge=1)
    registers: int | None = setting(
        None, "register tokens beside [CLS] (null: the network's own)", paper="0", ge=0, le=1000
    )
    drop_path: float = setting(
        0.1, "drop path of the student's last block, rising over depth", paper="0.1", ge=0, lt=1
    )
    positions: Resize = setting(
        "size", "how position embeddings are resized for other crop sizes", paper="reference"
    )
    init_std: float = setting(
        0.02,
        "std of the initial weights of the blocks; 1/sqrt(width) starts narrow networks faster",
        paper="0.02",
        gt=0,
    )
    pretrained: bool = setting(False, "start from timm's pretrained weights", paper="false")

    @property
    def patch(self) -> int:
        """The patch size: as given, else from the network's name, else 16."""
        named = re.search(r"patch(\d+)", self.name)
        return self.patch_size or (int(named[1]) if named else 16)


class Tokens(NamedTuple):
    """The output of a backbone: tokens after the final norm, and one block's `[CLS]` attention."""

    cls: Float[Tensor, "B D"]
    patches: Float[Tensor, "B N D"]
    attention: Float[Tensor, "B N"]
    norms: Float[Tensor, "B N"]
    """Of each patch at the input of that block."""


class Summary(NamedTuple):
    """`[CLS]` of each image, its attention, and the norms of the patches it attends to."""

    cls: Float[Tensor, "B D"]
    attention: Float[Tensor, "B N"]
    norms: Float[Tensor, "B N"]


class Selected(NamedTuple):
    """`[CLS]` and the requested patches, image after image."""

    cls: Float[Tensor, "B D"]
    patches: Float[Tensor, "M D"]


class Backbone(nn.Module):
    """A timm ViT with a class token, a mask token and any image size."""

    def __init__(
        self, vit: VisionTransformer, *, layer: int | None = None, positions: Resize = "size"
    ) -> None:
        super().__init__()
        _check_supported(vit)
        self.vit = vit
        for block in vit.blocks:
            Block.adopt_(block)
        self.mask_token = nn.Parameter(torch.zeros(1, vit.embed_dim))
        self.positions: Resize = positions
        self.layer = _layer_index(layer, len(vit.blocks))
        self._recompute = False

    def recompute_blocks(self) -> None:
        """Recompute each block in the backward pass, so that only its input is kept."""
        self._recompute = True

    def fuse_attention(self, fused: bool | None) -> None:
        """Compute attention by a fused kernel or not; None: where that is faster."""
        for block in self.blocks:
            block.fused = fused

    def compile_blocks(self, backend: str = "inductor") -> None:
        """Compile the blocks with torch.compile, once for all of them."""
        attention, mlp = BRANCHES
        compiled = (
            torch.compile(attention, backend=backend, dynamic=True),
            torch.compile(mlp, backend=backend, dynamic=True),
        )
        for block in self.blocks:
            block.branches = compiled

    @property
    def width(self) -> int:
        """The width of a token."""
        return int(self.vit.embed_dim)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.mask_token.device

    @property
    def blocks(self) -> list[Block]:
        """The blocks, each a module that can be wrapped and hooked."""
        return [block for block in self.vit.blocks if isinstance(block, Block)]

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return len(self.vit.blocks)

    @property
    def heads(self) -> tuple[int, ...]:
        """The attention heads of each block."""
        return tuple(b.attn.num_heads for b in self.blocks if isinstance(b.attn, Attention))

    @property
    def patch_size(self) -> int:
        """The side of a patch in pixels."""
        return int(self.vit.patch_embed.patch_size[0])

    @property
    def channels(self) -> int:
        """The number of image channels."""
        return int(self.vit.patch_embed.proj.in_channels)

    def grid(self, height: int, width: int) -> Grid:
        """Rows and columns of patches of an image."""
        return patches_along(height, self.patch_size), patches_along(width, self.patch_size)

    def forward(
        self, images: Float[Tensor, "B C height width"], mask: Bool[Tensor, "B N"] | None = None
    ) -> Tokens:
        """All tokens of images, whose patches may be masked."""
        x, watched = self._trunk(images, mask)
        x = self.vit.norm(self.blocks[-1](x))
        return Tokens(
            cls=x[:, 0],
            patches=x[:, self.prefix :],
            attention=self._attention(watched).mean(dim=1),
            norms=self._norms(watched),
        )

    def summary(self, images: Float[Tensor, "B C height width"]) -> Summary:
        """`[CLS]` and its attention alone, for objectives that read no patches."""
        x, watched = self._trunk(images, None)
        only_cls = ChosenTokens.only_cls(len(images), x.device)
        cls = self.vit.norm(self.blocks[-1](x, chosen=only_cls))
        return Summary(
            cls=cls,
            attention=self._attention(watched).mean(dim=1),
            norms=self._norms(watched),
        )

    def select(
        self,
        images: Float[Tensor, "B C height width"],
        mask: Bool[Tensor, "B N"] | None = None,
        wanted: Mask | None = None,
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> Selected:
        """`[CLS]` and the wanted patches of (masked) images; `keep` is the drop path."""
        x, _ = self._trunk(images, mask, keep)
        chosen = (
            ChosenTokens.only_cls(len(images), x.device)
            if wanted is None
            else ChosenTokens.cls_and(wanted, self.prefix)
        )
        last_keep = None if keep is None else keep[-1]
        x = self.vit.norm(self.blocks[-1](x, keep=last_keep, chosen=chosen))
        return Selected(cls=x[: len(images)], patches=x[len(images) :])

    def all_tokens(
        self,
        images: Float[Tensor, "B C height width"],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """All tokens after the final norm; `keep` is the drop path."""
        x, _ = self._trunk(images, None, keep)
        tokens: Tensor = self.vit.norm(self.blocks[-1](x, keep=None if keep is None else keep[-1]))
        return tokens

    def attention_heads(
        self, images: Float[Tensor, "B C height width"], layer: int | None = None
    ) -> Float[Tensor, "B H N"]:
        """The `[CLS]` attention of each head of a block, by default of the one that masks use."""
        index = self.layer if layer is None else _layer_index(layer, self.depth)
        x = self._embed(images, None)
        for block in self.blocks[:index]:
            x = block(x)
        return self.blocks[index].cls_attention(x, self.prefix)

    def outputs(
        self,
        images: Float[Tensor, "B C height width"],
        layers: Sequence[int],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
        *,
        norm: bool = False,
    ) -> Float[Tensor, "layers B T D"]:
        """All tokens after each of some blocks, counted from 1; `keep` is the drop path, and `norm`
        puts them through the final norm."""
        x, after = self._embed(images, None), {}
        for number, block in enumerate(self.blocks[: max(layers)], start=1):
            x = self._run(block, x, None if keep is None else keep[number - 1])
            if number in layers:
                after[number] = x
        tokens: Tensor = torch.stack([after[number] for number in layers])
        if norm:
            tokens = self.vit.norm(tokens)
        return tokens

    def last_outputs(
        self, images: Float[Tensor, "B C height width"], blocks: int
    ) -> Float[Tensor, "blocks B T D"]:
        """All tokens after each of the last blocks, before the final norm."""
        return self.outputs(images, range(self.depth + 1 - blocks, self.depth + 1))

    def cls_of_last_blocks(
        self, images: Float[Tensor, "B C height width"], blocks: int
    ) -> Float[Tensor, "blocks B D"]:
        """`[CLS]` after each of the last blocks, each through the final norm."""
        cls: Tensor = self.vit.norm(self.last_outputs(images, blocks)[:, :, 0])
        return cls

    @property
    def prefix(self) -> int:
        """The number of tokens before the patches: `[CLS]` and the registers."""
        return int(self.vit.num_prefix_tokens)

    def _trunk(
        self,
        images: Float[Tensor, "B C height width"],
        mask: Bool[Tensor, "B N"] | None,
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"]]:
        """The input of the last block and the input of the block whose attention is read."""
        x = watched = self._embed(images, mask)
        for i, block in enumerate(self.blocks[:-1]):
            x = self._run(block, x, None if keep is None else keep[i])
            if i < self.layer:
                watched = x
        return x, watched

    def _run(
        self, block: Block, x: Float[Tensor, "B T D"], keep: Float64[np.ndarray, "2 B"] | None
    ) -> Float[Tensor, "B T D"]:
        if self._recompute and torch.is_grad_enabled():
            y: Tensor = checkpoint(
                block, x, keep=keep, use_reentrant=False, preserve_rng_state=False
            )
        else:
            y = block(x, keep=keep)
        return y

    def _attention(self, watched: Float[Tensor, "B T D"]) -> Float[Tensor, "B H N"]:
        return self.blocks[self.layer].cls_attention(watched, self.prefix)

    def _norms(self, watched: Float[Tensor, "B T D"]) -> Float[Tensor, "B N"]:
        norms: Tensor = torch.linalg.vector_norm(watched[:, self.prefix :], dim=-1)
        return norms

    def _embed(
        self, images: Float[Tensor, "B C height width"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B T D"]:
        """Patches to tokens, masked ones replaced before their position is added (equation 2)."""
        vit = self.vit
        grid = self.grid(*images.shape[-2:])
        patches = vit.patch_embed.norm(vit.patch_embed.proj(images).flatten(2).transpose(1, 2))
        if mask is not None:
            patches = torch.where(mask[..., None], self.mask_token.to(patches.dtype), patches)
        prefix: list[Tensor] = [t for t in (vit.cls_token, vit.reg_token) if t is not None]
        first = torch.cat(prefix, dim=1).expand(
            images.shape[0], -1, -1
        )  # len would fix it in exports
        if vit.pos_embed is not None:
            placed = 0 if vit.no_embed_class else self.prefix
            where = vit.pos_embed[:, placed:]
            patches = patches + resize_positions(where, self._trained_grid, grid, self.positions)
            first = first + vit.pos_embed[:, :placed] if placed else first
        x: Tensor = vit.norm_pre(torch.cat([first, patches], dim=1))
        return x

    @property
    def _trained_grid(self) -> Grid:
        rows, cols = self.vit.patch_embed.grid_size
        return int(rows), int(cols)


def build_backbone(
    config: BackboneConfig, *, image_size: int, channels: int, layer: int | None = None
) -> Backbone:
    """A backbone with the reference's initial weights, or timm's pretrained ones."""
    patches_along(image_size, config.patch)
    asked: dict[str, Any] = {
        "embed_dim": config.width,
        "depth": config.depth,
        "num_heads": config.heads,
        "reg_tokens": config.registers,
    }
    if not timm.is_model(config.name):
        near = ", ".join(timm.list_models(f"{config.name[:9]}*")[:3]) or "vit_small_patch16_224"
        raise UserError(f"timm has no network {config.name!r}; try {near}")
    if config.width is not None and config.heads is not None and config.width % config.heads:
        raise UserError(f"width {config.width} is not a multiple of {config.heads} heads")
    try:
        create = timm.create_model
        if config.pretrained:
            create = partial(create_pretrained, instead="set backbone.pretrained=false")
        vit = create(
            config.name,
            img_size=image_size,
            patch_size=config.patch,
            in_chans=channels,
            num_classes=0,
            global_pool="token",
            **{name: value for name, value in asked.items() if value is not None},
        )
    except (AssertionError, TypeError, RuntimeError) as error:  # timm's ways to say no
        why = next(iter(str(error).splitlines()), "no class token")
        raise UserError(f"timm cannot build {config.name} as asked ({why}); {_ADVICE}") from error
    _check_supported(vit)
    assert isinstance(vit, VisionTransformer)
    backbone = Backbone(vit, layer=layer, positions=config.positions)
    if not config.pretrained and vit.cls_token is not None:
        nn.init.trunc_normal_(vit.cls_token, std=0.02)  # timm starts it at 1e-6
        for module in vit.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=config.init_std)
    return backbone


def drop_path_rates(backbone: Backbone, rate: float) -> Float64[np.ndarray, " L"]:
    """Rising linearly from 0 in the first block to `rate` in the last."""
    return np.linspace(0, rate, backbone.depth)


def patches_along(pixels: int, patch_size: int) -> int:
    """The number of patches along one side, which must be a multiple of the patch."""
    if pixels % patch_size or pixels < patch_size:
        lower = max(1, pixels // patch_size) * patch_size
        near = f"{lower} or {lower + patch_size}" if pixels > patch_size else f"{lower}"
        raise UserError(
            f"image size {pixels} is not a multiple of patch size {patch_size}; use {near}"
        )
    return pixels // patch_size


def _layer_index(layer: int | None, depth: int) -> int:
    if layer is not None and not 1 <= layer <= depth:
        raise UserError(f"attention of layer {layer} asked, the network has layers 1 to {depth}")
    return depth - 1 if layer is None else layer - 1


def _check_supported(vit: nn.Module) -> None:
    """Raise an error unless the network is a plain pre-norm ViT, as `blocks.py` needs."""
    plain = (
        type(vit) is VisionTransformer  # a distilled one has one token more
        and vit.cls_token is not None
        and type(vit.patch_embed) is PatchEmbed
        and all(type(b) in (timm_vit.Block, Block) for b in vit.blocks)
        and all(type(b.attn) is Attention for b in vit.blocks)
    )
    if not plain:
        raise UserError(
            f"{type(vit).__name__} is not a plain vision transformer with a class token; {_ADVICE}"
        )
