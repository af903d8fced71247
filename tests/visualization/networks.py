"""Networks with what they see, without reading images."""

from pathlib import Path

import torch

from attmask.evaluation.features.crops import CenterCrop
from attmask.mask import Grid
from attmask.visualization.reading import Network, Seen
from tests.evaluation.models import extractor_in, tiny_model


def seen_image(
    number: int = 0, *, grid: Grid = (4, 6), heads: int = 3, name: str | None = None
) -> Seen:
    """A random crop with random attention and patches, the same for the same number."""
    draw = torch.Generator().manual_seed(number)
    patches = grid[0] * grid[1]
    return Seen(
        index=number,
        name=name or f"image-{number}.png",
        crop=torch.randint(
            0, 256, (3, 8 * grid[0], 8 * grid[1]), generator=draw, dtype=torch.uint8
        ),
        heads=torch.rand(heads, patches, generator=draw).softmax(dim=1),
        patches=torch.randn(patches, 24, generator=draw),
        grid=grid,
    )


def network_of(*seen: Seen, name: str = "tiny") -> Network:
    """A tiny network that has seen these images."""
    model = tiny_model(name=name)
    return Network(name, model, CenterCrop(32), extractor_in(Path("unused")), seen=list(seen))
