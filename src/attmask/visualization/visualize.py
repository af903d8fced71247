"""Pictures of networks: which kinds there are, and the sheets of those asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from attmask.data.source import Source
from attmask.data.sources import images_path
from attmask.errors import UserError
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.store import default_cache
from attmask.evaluation.loading import load_model
from attmask.evaluation.network_names import names_of
from attmask.evaluation.whole_images import check_folder
from attmask.hardware import Precision, choose_device
from attmask.visualization.animation import checkpoints_of, write_frames
from attmask.visualization.attention import attention_sheets
from attmask.visualization.images import CropName, choose, crop_of, open_shown
from attmask.visualization.layout import Format, write_sheet
from attmask.visualization.masks import (
    RATIOS,
    SHOWN_STRATEGIES,
    STRATEGIES,
    StrategyName,
    figure_1_sheets,
    figure_3_sheets,
    mask_sheets,
)
from attmask.visualization.neighbours import neighbour_sheets
from attmask.visualization.pca import pca_sheets
from attmask.visualization.reading import Network, look
from attmask.visualization.sheet import Sheet
from attmask.visualization.similarity import similarity_sheets
from attmask.wording import either

Kind = Literal["attention", "masks", "figure1", "figure3", "pca", "similarity", "neighbours"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class _Options:
    """What the sheets of all kinds depend on."""

    max_rows: int
    strategies: Sequence[StrategyName]
    ratios: Sequence[float]
    foreground: bool
    patch: tuple[int, int] | None
    neighbours: int
    max_images: int
    seed: int


def visualize(
    checkpoints: str | Path | Sequence[str | Path],
    images: str | Path,
    *,
    out: str | Path,
    kinds: Sequence[Kind] = ("attention",),
    animate: bool = False,
    format: Format = "png",
    indices: Sequence[int] | None = None,
    count: int = 8,
    max_rows: int = 8,
    split: str | None = None,
    image_size: int | None = None,
    crop: CropName = "center",
    layer: int | None = None,
    strategies: Sequence[StrategyName] = SHOWN_STRATEGIES,
    ratios: Sequence[float] = RATIOS,
    foreground: bool = False,
    patch: tuple[int, int] | None = None,
    neighbours: int = 5,
    max_images: int = 2000,
    seed: int = 0,
    device: str = "auto",
) -> list[Path]:
    """Write pictures of networks on images to the folder `out`; returns the files.

    Checkpoints may be anything that `evaluate` accepts, `images` a picture or anything that
    `pretrain` accepts. `count` evenly spread images are shown, or those of `indices`. With
    `animate`, the checkpoints are one run, whose steps become the frames of an animated WebP.
    """
    named = [checkpoints] if isinstance(checkpoints, str | Path) else list(checkpoints)
    folder, path = Path(out), images_path(images)
    check_folder(folder, path)
    _check(named, kinds, strategies, ratios, animate=animate)
    shown = checkpoints_of(named[0]) if animate else named
    networks = [
        _network(one, name, device, crop, image_size, layer)
        for one, name in zip(shown, names_of(shown), strict=True)
    ]
    channels = {network.model.data.channels for network in networks}
    if len(channels) > 1:
        raise UserError(
            f"the checkpoints read images of {either([str(c) for c in sorted(channels)])} "
            "channels; show those of one number at a time"
        )
    source = open_shown(path, split, channels.pop())
    chosen = choose(source, indices, count)
    for network in networks:
        look(network, source, chosen)
    if animate:
        return [
            write_frames(networks, "pca" if kind == "pca" else "attention", folder / f"{kind}.webp")
            for kind in kinds
        ]
    options = _Options(
        max_rows, strategies, ratios, foreground, patch, neighbours, max_images, seed
    )
    files = []
    for kind in kinds:
        sheets = _sheets(kind, networks, source, options)
        for number, sheet in enumerate(sheets, start=1):
            page = f"-{number}" if len(sheets) > 1 else ""
            files.append(write_sheet(sheet, folder / f"{kind}{page}.{format}", format))
    return files


def _sheets(
    kind: Kind, networks: Sequence[Network], source: Source, options: _Options
) -> list[Sheet]:
    rows, seed = options.max_rows, options.seed
    match kind:
        case "attention":
            return attention_sheets(networks, rows)
        case "masks":
            return mask_sheets(
                networks, rows, strategies=options.strategies, ratios=options.ratios, seed=seed
            )
        case "figure1":
            return figure_1_sheets(networks, rows, seed=seed)
        case "figure3":
            return figure_3_sheets(networks, rows, seed=seed)
        case "pca":
            return pca_sheets(networks, rows, only_foreground=options.foreground)
        case "similarity":
            return similarity_sheets(networks, rows, patch=options.patch)
        case "neighbours":
            return neighbour_sheets(
                networks,
                rows,
                source=source,
                neighbours=options.neighbours,
                max_images=options.max_images,
            )


def _network(
    named: str | Path,
    name: str,
    device: str,
    crop: CropName,
    image_size: int | None,
    layer: int | None,
) -> Network:
    model = load_model(named, name)
    chosen = choose_device(device)
    cache = default_cache() if model.folder is None else model.folder / "features"
    extractor = FeatureExtractor(chosen, Precision.choose("fp32", chosen), cache, batch_size=8)
    return Network(name, model, crop_of(model, crop, image_size), extractor, layer)


def _check(
    named: Sequence[str | Path],
    kinds: Sequence[str],
    strategies: Sequence[str],
    ratios: Sequence[float],
    *,
    animate: bool,
) -> None:
    if not named:
        raise UserError("no checkpoint was given; give at least one")
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"there is no kind of picture {kind}; use {either(KINDS)}")
        if animate and kind not in ("attention", "pca"):
            raise UserError(f"{kind} cannot be animated; use attention or pca")
    if animate and len(named) > 1:
        raise UserError(f"{len(named)} checkpoints were given to animate; give one run")
    for strategy in strategies:
        if strategy not in STRATEGIES:
            raise UserError(f"there is no masking strategy {strategy}; use {either(STRATEGIES)}")
    for ratio in ratios:
        if not 0 <= ratio <= 1:
            raise UserError(f"mask ratio {ratio:g} is not between 0 and 1; use such as 0.3")
