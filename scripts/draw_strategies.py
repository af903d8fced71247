"""Draw the attention of a network on photographs and the patches that each strategy hides."""

import argparse
from pathlib import Path

import torch

import attmask
from attmask.masking import Block, High, Hint, Low, Masker, Random, Strategy
from attmask.visualization.layout import write_sheet
from attmask.visualization.overview import attention_sheet
from attmask.visualization.sheet import Sheet

STRATEGIES: dict[str, Strategy] = {
    "high": High(),
    "hint": Hint(show_max=0.1),
    "low": Low(),
    "random": Random(),
    "block": Block(),
}


def draw(weights: str, photos: list[Path], *, size: int, ratio: float, seed: int) -> Sheet:
    """One row per photograph: the centre crop, its attention, and one column per strategy."""
    backbone = attmask.load_backbone(weights)
    transform = attmask.transform(weights, image_size=size)
    images = torch.stack([transform(photo) for photo in photos])
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (transform.data.mean, transform.data.std))
    pixels = ((images * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)
    grid = backbone.grid(size, size)
    with torch.no_grad():
        attention = backbone(images).attention
    masks = {
        name: Masker(strategy, ratio=(ratio, ratio), probability=1.0, seed=seed)(
            attention, grid=grid, step=0
        )
        for name, strategy in STRATEGIES.items()
    }
    return attention_sheet(pixels, attention, masks, grid=grid)


def main() -> None:
    """Read the arguments, draw, and save."""
    parser = argparse.ArgumentParser(description="Draw attention and masks on photographs.")
    parser.add_argument("weights", metavar="WEIGHTS", help="checkpoint, as for attmask evaluate")
    parser.add_argument("photos", metavar="PHOTO", type=Path, nargs="+", help="image file")
    parser.add_argument("--out", metavar="FILE", type=Path, required=True, help="file to write")
    parser.add_argument("--size", type=int, default=224, help="side of the crop (default: 224)")
    parser.add_argument("--ratio", type=float, default=0.3, help="mask ratio (default: 0.3)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the masks (default: 0)")
    asked = parser.parse_args()
    sheet = draw(asked.weights, asked.photos, size=asked.size, ratio=asked.ratio, seed=asked.seed)
    write_sheet(sheet, asked.out)


if __name__ == "__main__":
    main()
