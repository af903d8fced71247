"""What a network makes of the probe images: attention, masks, and features of patches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.evaluation.features.forward import Autocast, forward
from attmask.evaluation.features.readout import AttentionMaps, PatchMaps, Readout
from attmask.evaluation.model import FrozenModel
from attmask.html_report.encoding import encoded, picture_uri
from attmask.html_report.gallery import Gallery
from attmask.masking import Block, Masker, Random, Strategy
from attmask.run_config import RunConfig

RATIOS = tuple(i / 100 for i in range(101))
"""The ratios at which random and block-wise masks are stored: all those of the slider."""
FEATURES = 64
"""Directions that are kept of the features of patches."""
_SIDE = 224  # pixels of a probe image
_SEED = 0


def probe_of(gallery: Gallery) -> dict[str, Any]:
    """The images and, where masks are, the object in them."""
    side = max(1, round(_SIDE / gallery.grid[1])) * gallery.grid[1]
    objects = gallery.objects()
    return {
        "images": [
            {
                "name": gallery.names[place],
                "label": gallery.label(place),
                "src": picture_uri(gallery.picture(place, side)),
                "object": None
                if objects is None
                else encoded(np.rint(255 * objects[number].numpy()), "u1"),
            }
            for number, place in enumerate(gallery.probes)
        ],
        "grid": list(gallery.grid),
        "size": [side, side],
    }


def studio_of(
    model: FrozenModel,
    gallery: Gallery,
    config: RunConfig,
    autocast: Autocast,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """The attention of each block and of each head of the block that guides masking."""
    backbone = model.backbone
    own = backbone.layer + 1
    rows: list[dict[str, Any]] = [{"title": f"block {own}, all heads", "layer": own, "head": None}]
    heads = read(model, gallery, AttentionMaps(layer=own, heads="each"), autocast).flatten(2)
    maps = [heads.mean(dim=1), *heads.unbind(dim=1)]
    rows += [
        {"title": f"block {own}, head {number}", "layer": own, "head": number}
        for number in range(1, heads.shape[1] + 1)
    ]
    for layer in range(1, backbone.depth + 1):
        check()
        if layer != own:
            maps.append(read(model, gallery, AttentionMaps(layer=layer), autocast).flatten(1))
            rows.append({"title": f"block {layer}, all heads", "layer": layer, "head": None})
    count = len(gallery.probes)
    return {
        "rows": rows,
        "attention": encoded(torch.stack(maps, dim=1).numpy(), "f4"),
        "default_row": 0,
        "ratios": list(RATIOS),
        "random": encoded(_drawn(Random(), count, gallery), "bits"),
        "block": encoded(_drawn(Block(), count, gallery), "bits"),
        "seed": _SEED,
        **_masking(config),
    }


def similarity_of(patches: Float[Tensor, "P N D"]) -> dict[str, Any]:
    """Features of unit length in the directions that hold most of them, as int8."""
    unit = functional.normalize(patches, dim=-1).double()
    flat = unit.flatten(0, 1)
    _, lengths, directions = torch.linalg.svd(flat, full_matrices=False)
    kept = float(lengths[:FEATURES].square().sum() / lengths.square().sum())
    few = unit @ directions[:FEATURES].T
    scale = 127 / few.abs().amax()
    return {"features": encoded((few * scale).round().numpy(), "i1"), "kept": kept}


def read(
    model: FrozenModel, gallery: Gallery, readout: Readout, autocast: Autocast
) -> Float[Tensor, "P ..."]:
    """The values of a readout for the probes, on the host."""
    batches = forward(model.backbone, [gallery.probe_crops], readout, model.data, autocast=autocast)
    values = next(batches).values.cpu()
    if not values.isfinite().all():
        raise UserError(
            f"the features of {model.name} are not finite; its training diverged, so go back to an "
            "earlier checkpoint"
        )
    return values


def patches_of(model: FrozenModel, gallery: Gallery, autocast: Autocast) -> Float[Tensor, "P N D"]:
    """The patch tokens of the last block."""
    maps = read(model, gallery, PatchMaps(), autocast)
    return maps[:, 0].flatten(2).transpose(1, 2)


def _drawn(strategy: Strategy, images: int, gallery: Gallery) -> np.ndarray:
    """The masks of a strategy that does not look at the attention: images, ratios, patches."""
    blind = torch.zeros(images, gallery.grid[0] * gallery.grid[1])
    masks = [
        Masker(strategy, (ratio, ratio), probability=1.0, seed=_SEED)(blind, gallery.grid, step=0)
        for ratio in RATIOS
    ]
    return torch.stack(masks, dim=1).numpy()


def _masking(config: RunConfig) -> dict[str, Any]:
    """The strategy and the ratio at which the studio opens: those of the run."""
    if not isinstance(config, PretrainConfig):
        return {"strategy": "high", "ratio": 0.3, "show_max": 0.1}
    low, high = config.masking.ratio
    return {
        "strategy": config.masking.strategy,
        "ratio": round((low + high) / 2, 2),
        "show_max": config.masking.show_max,
    }
