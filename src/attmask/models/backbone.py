"""The backbone: a timm vision transformer with a mask token and the attention of `[CLS]`."""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import timm
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attmask.errors import UserError
from attmask.mask import Grid, Mask
from attmask.models.architectures import ADVICE, AnyVit, adopt_blocks_, is_rotary, supported
from attmask.models.blocks import BRANCHES, ChosenTokens, PreNormBlock
from attmask.models.embedding import embed
from attmask.models.positions import Resize
from attmask.models.pretrained import create_pretrained
from attmask.models.rotary import angles_of
from attmask.settings import Config, setting


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
    layer_scale: float | None = setting(
        None,
        "initial layer scale; DINOv3's own, 1e-5, starts slowly (null: the network's own)",
        paper="none",
        gt=0,
        le=1,
    )
    drop_path: float = setting(
        0.1, "drop path of the student's last block, rising over depth", paper="0.1", ge=0, lt=1
    )
    positions: Resize = setting(
        "size",
        "how position embeddings are resized for other crop sizes; rotary positions need none",
        paper="reference",
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


class _Trunk(NamedTuple):
    """All but the last block, with what that one needs."""

    last: Float[Tensor, "B T D"]
    """The input of the last block."""
    watched: Float[Tensor, "B T D"]
    """The input of the block whose attention is read."""
    rope: Float[Tensor, "N R"] | None
    """The angles of rotary positions."""


class Backbone(nn.Module):
    """A timm ViT with a class token, a mask token and any image size."""

    def __init__(
        self, vit: AnyVit, *, layer: int | None = None, positions: Resize = "size"
    ) -> None:
        super().__init__()
        self.vit: AnyVit = supported(vit)
        adopt_blocks_(vit)
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
    def blocks(self) -> list[PreNormBlock]:
        """The blocks, each a module that can be wrapped and hooked."""
        return [block for block in self.vit.blocks if isinstance(block, PreNormBlock)]

    @property
    def depth(self) -> int:
        """The number of blocks."""
        return len(self.vit.blocks)

    @property
    def heads(self) -> tuple[int, ...]:
        """The attention heads of each block."""
        return tuple(block.attention.num_heads for block in self.blocks)

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
        trunk = self._trunk(images, mask)
        x = self._last(trunk)
        return Tokens(
            cls=x[:, 0],
            patches=x[:, self.prefix :],
            attention=self._attention(trunk),
            norms=self._norms(trunk),
        )

    def summary(self, images: Float[Tensor, "B C height width"]) -> Summary:
        """`[CLS]` and its attention alone, for objectives that read no patches."""
        trunk = self._trunk(images, None)
        only_cls = ChosenTokens.only_cls(len(images), images.device)
        return Summary(
            cls=self._last(trunk, chosen=only_cls),
            attention=self._attention(trunk),
            norms=self._norms(trunk),
        )

    def select(
        self,
        images: Float[Tensor, "B C height width"],
        mask: Bool[Tensor, "B N"] | None = None,
        wanted: Mask | None = None,
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> Selected:
        """`[CLS]` and the wanted patches of (masked) images; `keep` is the drop path."""
        chosen = (
            ChosenTokens.only_cls(len(images), images.device)
            if wanted is None
            else ChosenTokens.cls_and(wanted, self.prefix)
        )
        x = self._last(self._trunk(images, mask, keep), keep, chosen)
        return Selected(cls=x[: len(images)], patches=x[len(images) :])

    def all_tokens(
        self,
        images: Float[Tensor, "B C height width"],
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """All tokens after the final norm; `keep` is the drop path."""
        return self._last(self._trunk(images, None, keep), keep)

    def attention_heads(
        self, images: Float[Tensor, "B C height width"], layer: int | None = None
    ) -> Float[Tensor, "B H N"]:
        """The `[CLS]` attention of each head of a block, by default of the one that masks use."""
        index = self.layer if layer is None else _layer_index(layer, self.depth)
        x, rope = self._embed(images, None), self._angles(images)
        for block in self.blocks[:index]:
            x = block(x, rope=rope)
        return self.blocks[index].cls_attention(x, self.prefix, rope)

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
        x, rope, after = self._embed(images, None), self._angles(images), {}
        for number, block in enumerate(self.blocks[: max(layers)], start=1):
            x = self._run(block, x, rope, None if keep is None else keep[number - 1])
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
    ) -> _Trunk:
        x = watched = self._embed(images, mask)
        rope = self._angles(images)
        for i, block in enumerate(self.blocks[:-1]):
            x = self._run(block, x, rope, None if keep is None else keep[i])
            if i < self.layer:
                watched = x
        return _Trunk(x, watched, rope)

    def _run(
        self,
        block: PreNormBlock,
        x: Float[Tensor, "B T D"],
        rope: Float[Tensor, "N R"] | None,
        keep: Float64[np.ndarray, "2 B"] | None,
    ) -> Float[Tensor, "B T D"]:
        if self._recompute and torch.is_grad_enabled():
            y: Tensor = checkpoint(
                block, x, rope=rope, keep=keep, use_reentrant=False, preserve_rng_state=False
            )
        else:
            y = block(x, rope=rope, keep=keep)
        return y

    def _last(
        self,
        trunk: _Trunk,
        keep: Float64[np.ndarray, "L 2 B"] | None = None,
        chosen: ChosenTokens | None = None,
    ) -> Float[Tensor, "*tokens D"]:
        """The last block and the final norm, for all tokens or for the chosen ones."""
        last_keep = None if keep is None else keep[-1]
        x = self.blocks[-1](trunk.last, rope=trunk.rope, keep=last_keep, chosen=chosen)
        tokens: Tensor = self.vit.norm(x)
        return tokens

    def _attention(self, trunk: _Trunk) -> Float[Tensor, "B N"]:
        block = self.blocks[self.layer]
        return block.cls_attention(trunk.watched, self.prefix, trunk.rope).mean(dim=1)

    def _norms(self, trunk: _Trunk) -> Float[Tensor, "B N"]:
        norms: Tensor = torch.linalg.vector_norm(trunk.watched[:, self.prefix :], dim=-1)
        return norms

    def _angles(self, images: Float[Tensor, "B C height width"]) -> Float[Tensor, "N R"] | None:
        return angles_of(self.vit, self.grid(*images.shape[-2:]), images.device)

    def _embed(
        self, images: Float[Tensor, "B C height width"], mask: Bool[Tensor, "B N"] | None
    ) -> Float[Tensor, "B T D"]:
        grid = self.grid(*images.shape[-2:])
        return embed(self.vit, images, grid, mask, self.mask_token, self.positions)


def build_backbone(
    config: BackboneConfig, *, image_size: int, channels: int, layer: int | None = None
) -> Backbone:
    """A backbone with the reference's initial weights, or timm's pretrained ones."""
    patches_along(image_size, config.patch)
    asked: dict[str, Any] = {
        "embed_dim": config.width,
        "depth": config.depth,
        "num_heads": config.heads,
        "init_values": config.layer_scale,
    }
    if not timm.is_model(config.name):
        near = ", ".join(timm.list_models(f"{config.name[:9]}*")[:3]) or "vit_small_patch16_224"
        raise UserError(f"timm has no network {config.name!r}; try {near}")
    asked["num_reg_tokens" if is_rotary(config.name) else "reg_tokens"] = config.registers
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
        raise UserError(f"timm cannot build {config.name} as asked ({why}); {ADVICE}") from error
    vit = supported(vit)
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
