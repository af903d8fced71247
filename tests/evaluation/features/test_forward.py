from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision import transforms

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.forward import (
    Autocast,
    Features,
    collect,
    forward,
    frozen,
    normalise,
)
from attmask.evaluation.features.images import CachedCrops, ImageReader, labels_of
from attmask.evaluation.features.readout import CLS
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone

DATA = DataConfig()


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=32, depth=2, heads=2)
    return build_backbone(config, image_size=32, channels=3)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return write_images(tmp_path, {"ant": 5, "bee": 3, "cat": 9})


def write_images(root: Path, counts: dict[str, int]) -> Source:
    rng = np.random.default_rng(0)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            height, width = rng.integers(30, 60, size=2)
            pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:02}.png")
    return open_images(root).train


def test_normalised_pixels_equal_torchvisions() -> None:
    crops = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    expected = transforms.Normalize(DATA.mean, DATA.std)(crops / 255)
    torch.testing.assert_close(normalise(crops, DATA.mean, DATA.std), expected)
    one = normalise(crops, (0.5,), (0.25,))
    torch.testing.assert_close(one, (crops / 255 - 0.5) / 0.25)


def test_two_means_for_three_channels_are_refused() -> None:
    with pytest.raises(UserError, match="2 means and 3 stds were given for 3 channels"):
        normalise(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), (0.5, 0.5), DATA.std)


def read(
    backbone: Backbone,
    source: Source,
    batch_size: int = 64,
    workers: int = 0,
    autocast: Autocast = nullcontext,
) -> Features:
    everything = range(len(source))
    reader = ImageReader(source, CenterCrop(32), DATA)
    crops = reader.batches(everything, batch_size=batch_size, workers=workers)
    values = collect(forward(backbone, crops, CLS, DATA, autocast=autocast))
    return Features(values, labels_of(source, everything))


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (7, 0), (100, 0), (4, 2)])
def test_features_are_the_class_tokens_in_the_order_of_the_source(
    backbone: Backbone, source: Source, batch_size: int, workers: int
) -> None:
    features = read(
        backbone,
        source,
        batch_size=batch_size,
        workers=workers,
    )
    assert features.labels is not None
    assert features.labels.tolist() == [0] * 5 + [1] * 3 + [2] * 9
    torch.testing.assert_close(features.vectors, one_by_one(backbone, source), atol=1e-5, rtol=1e-5)


def test_images_that_cannot_be_read_have_no_features(backbone: Backbone, source: Source) -> None:
    whole = read(backbone, source).vectors
    Path(source.place(6)).write_bytes(b"no picture")
    reader = ImageReader(source, CenterCrop(32), DATA)
    crops = [*reader.batches(range(17), batch_size=4), reader.blank()]
    values = collect(forward(backbone, crops, CLS, DATA))
    torch.testing.assert_close(values, whole[torch.arange(17) != 6], atol=1e-5, rtol=1e-5)
    assert collect(forward(backbone, [reader.blank()], CLS, DATA)).shape == (0, 32)


def one_by_one(backbone: Backbone, source: Source) -> Tensor:
    prepare = transforms.Compose(
        [
            transforms.Resize(37, interpolation=transforms.InterpolationMode.BICUBIC),
            transforms.CenterCrop(32),
            transforms.ToTensor(),
            transforms.Normalize(DATA.mean, DATA.std),
        ]
    )
    images = (prepare(Image.fromarray(decode(source, i, DATA))) for i in range(len(source)))
    with frozen(backbone):
        return torch.cat([backbone(image[None]).cls for image in images]).clone()


def test_cached_crops_give_the_same_features(backbone: Backbone, source: Source) -> None:
    crops = CachedCrops(source, CenterCrop(32), DATA)
    assert crops.pixels.dtype == torch.uint8
    assert crops.pixels.shape == (17, 3, 32, 32)
    cached = Features(collect(forward(backbone, crops.batches(5), CLS, DATA)), crops.labels)
    direct = read(backbone, source)
    torch.testing.assert_close(cached.vectors, direct.vectors, atol=1e-5, rtol=1e-5)
    assert cached.labels is not None
    assert direct.labels is not None
    assert torch.equal(cached.labels, direct.labels)


def test_extraction_leaves_modes_gradients_and_random_numbers_as_they_were(
    backbone: Backbone, source: Source
) -> None:
    backbone.train()
    backbone.vit.norm.eval()
    modes = [module.training for module in backbone.modules()]
    before = torch.get_rng_state()
    features = read(backbone, source, workers=1)
    assert [module.training for module in backbone.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert not features.vectors.requires_grad
    # A probe trained on them needs ordinary tensors.
    assert not features.vectors.is_inference()


def test_features_are_fp32_in_mixed_precision(backbone: Backbone, source: Source) -> None:
    full = read(backbone, source)
    mixed = read(
        backbone,
        source,
        autocast=lambda: torch.autocast("cpu", torch.bfloat16),
    )
    assert mixed.vectors.dtype == torch.float32
    assert not torch.equal(mixed.vectors, full.vectors)
    torch.testing.assert_close(mixed.vectors, full.vectors, atol=0.1, rtol=0.1)


def test_the_caller_keeps_its_own_mode_between_batches(backbone: Backbone, source: Source) -> None:
    backbone.train()
    crops = ImageReader(source, CenterCrop(32), DATA).batches(range(17), batch_size=5)
    for batch in forward(backbone, crops, CLS, DATA):
        assert torch.is_grad_enabled()
        assert backbone.training
        assert not batch.values.requires_grad
