"""Attention, heads and the masks of all strategies, one row an image: the sheet of the demo."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.forward import Autocast, forward
from attmask.evaluation.features.images import ImageReader
from attmask.evaluation.features.readout import AttentionMaps
from attmask.evaluation.metrics.objects import strategy_masks
from attmask.mask import Grid
from attmask.models.backbone import Backbone
from attmask.visualization.cells import heads_cell, map_cell, masked_cell, photo
from attmask.visualization.images import choose
from attmask.visualization.layout import write_sheet
from attmask.visualization.sheet import Cell, Column, Row, Sheet


def attention_sheet(
    images: UInt8[Tensor, "B C height width"],
    attention: Float[Tensor, "B N"],
    masks: Mapping[str, Bool[Tensor, "B N"]],
    *,
    grid: Grid,
    heads: Float[Tensor, "B H N"] | None = None,
) -> Sheet:
    """One row per image: the crop, its attention map, the heads if given, and one column per
    strategy with the hidden patches in grey."""
    rows = []
    for i, image in enumerate(images):
        crop = photo(image, grid)
        cells = [crop, map_cell(crop, attention[i].view(grid))]
        if heads is not None:
            cells.append(heads_cell(crop, heads[i], grid))
        cells += [masked_cell(crop, mask[i].view(grid)) for mask in masks.values()]
        rows.append(Row([Cell(cell) for cell in cells]))
    titles = ["image", "attention", *([] if heads is None else ["heads (60 %)"]), *masks]
    return Sheet("", [Column(title) for title in titles], rows)


def save_attention_pictures(
    backbone: Backbone,
    source: Source,
    indices: Sequence[int],
    out: Path,
    *,
    image_size: int,
    data: DataConfig,
    ratio: float = 0.3,
    seed: int = 0,
    rows: int = 8,
    autocast: Autocast = nullcontext,
) -> list[Path]:
    """Write sheets of `rows` images each to the folder `out`: attention_1.png and so on."""
    indices = choose(source, indices, rows)
    grid = backbone.grid(image_size, image_size)
    crops = ImageReader(source, CenterCrop(image_size), data).batches(indices, batch_size=rows)
    files: list[Path] = []
    each_head = AttentionMaps(heads="each")
    for batch in forward(backbone, crops, each_head, data, autocast=autocast):
        first = len(files) * rows
        for index, readable in zip(indices[first:], batch.readable.tolist(), strict=False):
            if not readable:
                decode(source, index, data)  # raises the error that names the image
        heads = batch.values.flatten(2).cpu()
        attention = heads.mean(dim=1)
        masks = strategy_masks(attention, grid, ratio=ratio, seed=seed, first_image=first)
        sheet = attention_sheet(batch.pixels, attention, masks, grid=grid, heads=heads)
        files.append(write_sheet(sheet, out / f"attention_{len(files) + 1}.png"))
    return files
