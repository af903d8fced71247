from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.sources import open_images
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.images import CachedCrops
from attmask.evaluation.metrics.baselines import PIXELS, colour_features, pixel_features
from attmask.evaluation.protocols.knn import knn_accuracy


def cached(folder: Path, pictures: dict[str, list[Tensor]]) -> CachedCrops:
    for name, images in pictures.items():
        (folder / name).mkdir(parents=True)
        for i, pixels in enumerate(images):
            Image.fromarray(pixels.numpy()).save(folder / name / f"{i}.png")
    return CachedCrops(open_images(folder).train, CenterCrop(16), DataConfig())


def tinted(red: int, green: int, blue: int, seed: int) -> Tensor:
    noise = torch.randint(0, 12, (16, 16, 3), generator=torch.Generator().manual_seed(seed))
    return (torch.tensor([red, green, blue]) + noise).to(torch.uint8)


def test_colour_knows_a_pale_from_a_vivid_image_of_one_hue(tmp_path: Path) -> None:
    shades = {"pale": (130, 100, 100), "vivid": (230, 100, 100), "blue": (90, 90, 200)}
    bank, queries = (
        cached(
            tmp_path / split,
            {n: [tinted(*rgb, seed + i) for i in range(8)] for n, rgb in shades.items()},
        )
        for split, seed in (("bank", 0), ("queries", 100))
    )
    assert knn_accuracy(*colour_features(bank, queries), k=3, classes=3).top1 == 100


def test_pixels_are_centred_by_the_bank_and_not_by_the_queries(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    noise = [torch.randint(0, 255, (16, 16, 3), generator=draw).to(torch.uint8) for _ in range(6)]
    bank = cached(tmp_path / "bank", {"a": noise[:2], "b": noise[2:4]})
    queries = cached(tmp_path / "queries", {"a": noise[:1], "b": noise[2:3]})
    bank_features, query_features = pixel_features(bank, queries)
    torch.testing.assert_close(
        bank_features.vectors.mean(dim=0), torch.zeros(768), atol=1e-4, rtol=0
    )
    torch.testing.assert_close(query_features.vectors[0], bank_features.vectors[0])
    assert knn_accuracy(bank_features, query_features, k=1, classes=2).top1 == 100


def test_large_crops_are_averaged_down_before_their_pixels_are_compared(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    halves = torch.zeros(96, 96, 3, dtype=torch.uint8)
    halves[:, 48:] = 200
    Image.fromarray(halves.numpy()).save(tmp_path / "a" / "0.png")
    Image.fromarray((200 - halves).numpy()).save(tmp_path / "a" / "1.png")
    crops = CachedCrops(open_images(tmp_path).train, CenterCrop(96), DataConfig())
    features, _ = pixel_features(crops, crops)
    assert features.vectors.shape == (2, 3 * PIXELS * PIXELS)
    first = features.vectors[0].view(3, PIXELS, PIXELS)  # the edge between the halves is blurred
    torch.testing.assert_close(first[:, :, :20], torch.full((3, PIXELS, 20), -100.0))
    torch.testing.assert_close(first[:, :, -20:], torch.full((3, PIXELS, 20), 100.0))
