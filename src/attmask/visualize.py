"""Pictures of the teacher's attention and of what each masking strategy hides."""

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from attmask import atomic
from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.forward import Autocast, forward
from attmask.evaluation.features.images import ImageReader
from attmask.evaluation.features.readout import AttentionMaps
from attmask.evaluation.metrics.objects import strategy_masks
from attmask.mask import Grid
from attmask.models.backbone import Backbone

SMALLEST_CELL = 160  # pixels; smaller crops are enlarged by a whole factor

# From dark indigo over rose to pale yellow, with evenly increasing lightness (OKLab), so equal
# differences of attention look equal, also in grey and to the colour-blind.
_COLOUR_MAP = (
    (14, 14, 39),
    (51, 21, 82),
    (102, 20, 109),
    (159, 17, 111),
    (211, 39, 91),
    (247, 86, 57),
    (255, 142, 35),
    (255, 197, 88),
    (255, 244, 165),
)
_HEAD_COLOURS = (
    (86, 180, 233),
    (230, 159, 0),
    (0, 158, 115),
    (204, 121, 167),
    (240, 228, 66),
    (213, 94, 0),
)
_PAPER, _INK = (250, 250, 248), (40, 40, 44)
_HIDDEN, _HIDDEN_GRID = (58, 58, 64), (82, 82, 90)
_MARGIN, _GAP = 14, 8
_LETTERS = 9  # titles have 1/9 of the cell width as height, so they stay legible when scaled down


def colours(values: Float[Tensor, "rows cols"]) -> UInt8[Tensor, "rows cols 3"]:
    """Map values from 0 to 1 to colours by linear interpolation of the colour map."""
    table = torch.tensor(_COLOUR_MAP, dtype=torch.float32)
    position = values.float().clamp(0, 1) * (len(table) - 1)
    low = position.floor().long().clamp(max=len(table) - 2)
    share = (position - low)[..., None]
    return (table[low] * (1 - share) + table[low + 1] * share).round().to(torch.uint8)


def top_mass(attention: Float[Tensor, "... N"], mass: float = 0.6) -> Bool[Tensor, "... N"]:
    """The smallest set of most attended patches that has this share of the attention."""
    order = attention.argsort(dim=-1, descending=True, stable=True)
    held = attention.gather(-1, order).double().cumsum(dim=-1)
    before = held - attention.gather(-1, order).double()
    kept = before < mass * held[..., -1:]
    return torch.zeros_like(kept).scatter_(-1, order, kept)


def attention_sheet(
    images: UInt8[Tensor, "B C height width"],
    attention: Float[Tensor, "B N"],
    masks: Mapping[str, Bool[Tensor, "B N"]],
    *,
    grid: Grid,
    heads: Float[Tensor, "B H N"] | None = None,
) -> Image.Image:
    """Draw one row per image: the crop, its attention map, the heads if given, and one column per
    strategy with the hidden patches in grey."""
    rows: list[dict[str, Image.Image]] = []
    for i in range(len(images)):
        photo = _photo(images[i])
        row = {"image": photo, "attention": _attention_cell(photo, attention[i].view(grid))}
        if heads is not None:
            row["heads (60 %)"] = _heads_cell(photo, top_mass(heads[i]), grid)
        for name, mask in masks.items():
            row[name] = _masked_cell(photo, mask[i].view(grid))
        rows.append(row)
    return _table(rows)


def _photo(image: UInt8[Tensor, "C H W"]) -> Image.Image:
    """The crop in colour, enlarged by a whole factor so that patches keep sharp borders."""
    shown = image[:3] if len(image) >= 3 else image[:1].expand(3, -1, -1)
    photo = Image.fromarray(shown.permute(1, 2, 0).contiguous().numpy())
    factor = math.ceil(SMALLEST_CELL / min(photo.size))
    size = (photo.width * factor, photo.height * factor)
    return photo.resize(size, Image.Resampling.BICUBIC)


def _attention_cell(photo: Image.Image, attention: Float[Tensor, "rows cols"]) -> Image.Image:
    """The attention as colours over the grey image, scaled from minimum to maximum."""
    low, high = attention.min(), attention.max()
    strength = (attention - low) / (high - low).clamp_min(torch.finfo(torch.float32).tiny)
    overlay = Image.fromarray(colours(strength).numpy())
    overlay = overlay.resize(photo.size, Image.Resampling.NEAREST)
    return Image.blend(photo.convert("L").convert("RGB"), overlay, 0.65)


def _heads_cell(photo: Image.Image, kept: Bool[Tensor, "H N"], grid: Grid) -> Image.Image:
    """The patches that each head attends to, one colour per head, mixed where heads overlap."""
    palette = torch.tensor(_HEAD_COLOURS, dtype=torch.float32)
    palette = palette[torch.arange(len(kept)) % len(palette)]
    looks = kept.float()
    count = looks.sum(dim=0)
    mixed = (looks.T @ palette) / count.clamp_min(1)[:, None]
    overlay = Image.fromarray(mixed.view(*grid, 3).round().to(torch.uint8).numpy())
    # The more heads agree, the stronger the colour.
    alpha = torch.where(count > 0, 90 + 110 * count / len(kept), 0.0).to(torch.uint8)
    stencil = Image.fromarray(alpha.view(grid).numpy())
    cell = Image.blend(photo.convert("L").convert("RGB"), Image.new("RGB", photo.size), 0.35)
    nearest = Image.Resampling.NEAREST
    cell.paste(overlay.resize(photo.size, nearest), mask=stencil.resize(photo.size, nearest))
    return cell


def _masked_cell(photo: Image.Image, mask: Bool[Tensor, "rows cols"]) -> Image.Image:
    """The input of the student: hidden patches are grey with a thin outline."""
    cell = photo.copy()
    draw = ImageDraw.Draw(cell)
    rows, cols = mask.shape
    height, width = photo.height / rows, photo.width / cols
    for row, col in mask.nonzero().tolist():
        corner = (round(col * width), round(row * height))
        opposite = (round((col + 1) * width) - 1, round((row + 1) * height) - 1)
        draw.rectangle((corner, opposite), fill=_HIDDEN, outline=_HIDDEN_GRID)
    return cell


def _table(rows: Sequence[Mapping[str, Image.Image]]) -> Image.Image:
    """Cells in rows under the titles of their columns."""
    titles = list(rows[0])
    width, height = rows[0][titles[0]].size
    letters = width // _LETTERS
    top = _MARGIN + round(1.6 * letters)
    sheet = Image.new(
        "RGB",
        (
            2 * _MARGIN + len(titles) * (width + _GAP) - _GAP,
            top + _MARGIN + len(rows) * (height + _GAP) - _GAP,
        ),
        _PAPER,
    )
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(letters)
    for column, title in enumerate(titles):
        left = _MARGIN + column * (width + _GAP)
        draw.text((left + width / 2, top / 2 + 2), title, fill=_INK, font=font, anchor="mm")
        for row, cells in enumerate(rows):
            sheet.paste(cells[title], (left, top + row * (height + _GAP)))
    return sheet


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
    wrong = [index for index in indices if not 0 <= index < len(source)]
    if wrong or not indices:
        raise UserError(
            f"indices {wrong or 'none'} do not fit the {len(source)} images of {source.root}; "
            f"use indices from 0 to {len(source) - 1}"
        )
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
        files.append(out / f"attention_{len(files) + 1}.png")
        with atomic.file(files[-1]) as part:
            sheet.save(part)
    return files
