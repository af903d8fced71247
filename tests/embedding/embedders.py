"""Embedders of a tiny network, which read the generated images in small batches."""

from pathlib import Path

from attmask.data.sources import open_images
from attmask.embedding.embedder import Embedder, Tokens, readout_of
from attmask.embedding.images import SplitName, image_rows
from attmask.evaluation.features.crops import CenterCrop
from tests.evaluation.models import extractor_in, tiny_model


def tiny_embedder(
    images: Path,
    *,
    tokens: Tokens = "cls",
    blocks: int = 1,
    size: int = 32,
    split: SplitName = "all",
    batch_size: int = 8,
    seed: int = 0,
) -> Embedder:
    """An embedder of 24 numbers an image, or 24 a patch."""
    return Embedder(
        tiny_model(seed),
        image_rows(open_images(images), images, split),
        extractor_in(images, batch_size=batch_size),
        CenterCrop(size),
        readout_of(tokens, blocks, norm_gap=False),
    )
