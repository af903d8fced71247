import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor
from torchvision import transforms

from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.features.forward import (
    CachedCrops,
    as_tensor,
    center_crop,
    crop_pixels,
    extract,
    extract_cached,
    frozen,
    normalise,
    read_in_order,
)
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from tests.sources import of_files

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


def die(index: int) -> tuple[Tensor]:
    """End the process at the fifth image, as the system does when memory runs out."""
    if index == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return (torch.tensor(index),)


def test_a_killed_reader_is_one_line_that_names_memory() -> None:
    with pytest.raises(UserError) as caught:
        list(read_in_order(die, range(40), batch_size=2, workers=2))
    assert str(caught.value) == (
        "a worker process was ended by signal Killed; the machine most likely ran out of memory: "
        "use fewer workers (2 now)"
    )


@settings(max_examples=40, deadline=None)
@given(width=st.integers(20, 300), height=st.integers(20, 300), size=st.sampled_from([32, 48, 224]))
def test_the_crop_equals_torchvisions_resize_and_centre_crop(
    width: int, height: int, size: int
) -> None:
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(pixels)
    resize = transforms.Resize(
        round(size * 256 / 224), interpolation=transforms.InterpolationMode.BICUBIC
    )
    expected = transforms.CenterCrop(size)(resize(image))
    assert np.array_equal(np.asarray(center_crop(image, size)), np.asarray(expected))


def test_a_photograph_for_224_is_resized_to_256() -> None:
    halves = np.zeros((256, 512, 3), np.uint8)
    halves[:, 256:] = 255
    crop = np.asarray(center_crop(Image.fromarray(halves), 224))
    assert crop.shape == (224, 224, 3)
    assert np.array_equal(crop, halves[16:240, 144:368])


@pytest.mark.parametrize("shape", [(2, 20_000), (20_000, 1)])
def test_a_very_long_picture_is_not_resized_as_a_whole_for_its_middle(
    shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[tuple[int, int]] = []
    resize = Image.Image.resize

    def noted(image: Image.Image, size: tuple[int, int], *others: Any) -> Image.Image:
        sizes.append(size)
        return resize(image, size, *others)

    monkeypatch.setattr(Image.Image, "resize", noted)
    position = np.linspace(0, 255, max(shape)).astype(np.uint8)
    ramp = np.broadcast_to(position if shape[0] < shape[1] else position[:, None], shape)
    crop = crop_pixels(ramp[:, :, None], 32).float()
    assert crop.shape == (1, 32, 32)
    assert (crop - 127.5).abs().max() <= 1
    assert max(sizes[0]) <= 16 * min(sizes[0])


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_come_channels_first(channels: int) -> None:
    shape = (4, 5) if channels == 1 else (4, 5, 3)
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    expected = pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)
    assert np.array_equal(as_tensor(Image.fromarray(pixels)).numpy(), expected)


def test_normalised_pixels_equal_torchvisions() -> None:
    crops = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    expected = transforms.Normalize(DATA.mean, DATA.std)(crops / 255)
    torch.testing.assert_close(normalise(crops, DATA.mean, DATA.std), expected)
    one = normalise(crops, (0.5,), (0.25,))
    torch.testing.assert_close(one, (crops / 255 - 0.5) / 0.25)


def test_two_means_for_three_channels_are_refused() -> None:
    with pytest.raises(UserError, match="2 means and 3 deviations for images of 3 channels"):
        normalise(torch.zeros(1, 3, 2, 2, dtype=torch.uint8), (0.5, 0.5), DATA.std)


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (7, 0), (100, 0), (4, 2)])
def test_features_are_the_class_tokens_in_the_order_of_the_source(
    backbone: Backbone, source: Source, batch_size: int, workers: int
) -> None:
    features = extract(
        backbone,
        source,
        image_size=32,
        data=DATA,
        batch_size=batch_size,
        workers=workers,
    )
    assert features.labels is not None
    assert features.labels.tolist() == [0] * 5 + [1] * 3 + [2] * 9
    torch.testing.assert_close(features.vectors, one_by_one(backbone, source), atol=1e-5, rtol=1e-5)


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
    crops = CachedCrops(source, 32, DATA)
    assert crops.images.dtype == torch.uint8
    assert crops.images.shape == (17, 3, 32, 32)
    cached = extract_cached(backbone, crops, data=DATA, batch_size=5)
    direct = extract(backbone, source, image_size=32, data=DATA)
    torch.testing.assert_close(cached.vectors, direct.vectors, atol=1e-5, rtol=1e-5)
    assert cached.labels is not None
    assert direct.labels is not None
    assert torch.equal(cached.labels, direct.labels)


def test_limited_crops_are_those_of_the_chosen_images(source: Source) -> None:
    grey = DataConfig(channels=1)
    everything, some = CachedCrops(source, 16, grey), CachedCrops(source, 16, grey, max_images=6)
    assert some.labels is not None
    assert some.labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert len(some) == 6
    assert torch.equal(some.images, everything.images[some.indices])


def test_images_without_labels_have_features_without_labels(
    backbone: Backbone, tmp_path: Path
) -> None:
    Image.new("RGB", (40, 50)).save(tmp_path / "a.png")
    source = open_images(tmp_path).train
    features = extract(backbone, source, image_size=32, data=DATA)
    assert features.labels is None
    assert features.vectors.shape == (1, backbone.width)


def test_extraction_leaves_modes_gradients_and_random_numbers_as_they_were(
    backbone: Backbone, source: Source
) -> None:
    backbone.train()
    backbone.vit.norm.eval()
    modes = [module.training for module in backbone.modules()]
    before = torch.get_rng_state()
    features = extract(backbone, source, image_size=32, data=DATA, workers=1)
    assert [module.training for module in backbone.modules()] == modes
    assert torch.equal(torch.get_rng_state(), before)
    assert not features.vectors.requires_grad
    # A probe trained on them needs ordinary tensors.
    assert not features.vectors.is_inference()


def test_features_are_fp32_in_mixed_precision(backbone: Backbone, source: Source) -> None:
    full = extract(backbone, source, image_size=32, data=DATA)
    mixed = extract(
        backbone,
        source,
        image_size=32,
        data=DATA,
        autocast=lambda: torch.autocast("cpu", torch.bfloat16),
    )
    assert mixed.vectors.dtype == torch.float32
    assert not torch.equal(mixed.vectors, full.vectors)
    torch.testing.assert_close(mixed.vectors, full.vectors, atol=0.1, rtol=0.1)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_one_clear_line(
    backbone: Backbone, source: Source, workers: int
) -> None:
    Path(source.place(6)).write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"bee.01\.png") as raised:
        extract(backbone, source, image_size=32, data=DATA, workers=workers)
    assert "\n" not in str(raised.value)


def test_an_empty_source_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    empty = of_files(tmp_path, ())
    with pytest.raises(UserError, match="no images"):
        extract(backbone, empty, image_size=32, data=DATA)
    with pytest.raises(UserError, match="no images"):
        CachedCrops(empty, 32, DATA)
