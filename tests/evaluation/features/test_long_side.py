import numpy as np
import pytest
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional

from attmask.evaluation.features.forward import normalise
from attmask.evaluation.features.long_side import LongSide
from attmask.evaluation.features.readout import CLS, Embedding, MultiScale
from attmask.models.backbone import Backbone
from tests.evaluation.models import tiny_backbone

MULTI = (1.0, 2**-0.5, 0.5)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return tiny_backbone()


def noise(height: int, width: int, seed: int = 0) -> UInt8[np.ndarray, "H W 3"]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def shown(crop: LongSide, pixels: np.ndarray) -> Tensor:
    return normalise(crop(pixels, 0)[None], (0.5,), (0.25,))


def vector(readout: MultiScale, backbone: Backbone, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return readout(backbone, images)


def test_a_picture_becomes_what_pillow_s_thumbnail_makes_of_it() -> None:
    pixels = noise(90, 151)
    expected = Image.fromarray(pixels)
    expected.thumbnail((64, 64), Image.Resampling.LANCZOS)
    found = LongSide(64)(pixels, 0)
    assert found.shape == (3, 38, 64)
    assert np.array_equal(found.permute(1, 2, 0).numpy(), np.array(expected))


def test_a_small_picture_is_not_enlarged() -> None:
    pixels = noise(20, 30)
    assert np.array_equal(LongSide(64)(pixels, 0).permute(1, 2, 0).numpy(), pixels)


def test_a_box_is_shown_at_the_scale_of_its_whole_picture() -> None:
    pixels = noise(100, 200)
    boxed = LongSide(100, boxes=((0.0, 0.0, 9.0, 9.0), (40.4, 20.0, 119.6, 80.0)))
    expected = Image.fromarray(pixels).crop((40, 20, 120, 80))
    expected.thumbnail((40, 40), Image.Resampling.LANCZOS)  # 80 of 200 pixels at half the size
    assert np.array_equal(boxed(pixels, 1).permute(1, 2, 0).numpy(), np.array(expected))


@pytest.mark.parametrize(
    "box", [(500.0, 500.0, 900.0, 900.0), (-50.0, -50.0, -10.0, -10.0), (5.1, 5.1, 5.2, 5.2)]
)
def test_a_box_beside_the_picture_shows_at_least_a_pixel(
    box: tuple[float, float, float, float],
) -> None:
    # An unreadable picture is replaced by a small black one, which its box need not meet.
    assert min(LongSide(64, boxes=(box,))(noise(32, 32), 0).shape) >= 1


def test_one_scale_is_what_the_network_reads_of_whole_patches(backbone: Backbone) -> None:
    images = shown(LongSide(64), noise(61, 47))
    with torch.inference_mode():
        expected = CLS(backbone, images[..., :56, :40])
    torch.testing.assert_close(vector(MultiScale(), backbone, images), expected)


@pytest.mark.parametrize("equal", [True, False])
def test_several_scales_are_averaged(backbone: Backbone, equal: bool) -> None:
    images = shown(LongSide(64), noise(64, 50))
    total = torch.zeros(24)
    for scale, (height, width) in zip(MULTI, ((64, 48), (40, 32), (32, 24)), strict=True):
        small = images
        if scale != 1:
            small = functional.interpolate(images, scale_factor=scale, mode="bilinear")
        with torch.inference_mode():
            read = CLS(backbone, small[..., :height, :width])[0]
        total = total + (read / read.norm() if equal else read)
    found = vector(MultiScale(CLS, MULTI, equal), backbone, images)
    torch.testing.assert_close(found[0], total / total.norm())


def test_equal_scales_make_a_difference(backbone: Backbone) -> None:
    images = shown(LongSide(64), noise(64, 50))
    gap = Embedding(token="gap")
    equal, raw = (vector(MultiScale(gap, MULTI, yes), backbone, images) for yes in (True, False))
    assert not torch.allclose(equal, raw, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 200), (200, 3), (7, 64)])
def test_a_side_shorter_than_a_patch_is_stretched(
    backbone: Backbone, height: int, width: int
) -> None:
    images = shown(LongSide(64), noise(height, width))
    found = vector(MultiScale(CLS, MULTI), backbone, images)
    assert found.shape == (1, 24)
    assert bool(found.isfinite().all())


def test_a_description_tells_every_setting_apart(backbone: Backbone) -> None:
    crops = [
        LongSide(64),
        LongSide(72),
        LongSide(64, boxes=((0.0, 0.0, 1.0, 1.0),)),
        LongSide(64, boxes=((0.0, 0.0, 1.0, 2.0),)),
    ]
    readouts = [
        MultiScale(),
        MultiScale(scales=MULTI),
        MultiScale(equal_scales=True),
        MultiScale(Embedding(token="gap")),
    ]
    assert len({str(crop.describe()) for crop in crops}) == len(crops)
    assert len({str(readout.describe(backbone)) for readout in readouts}) == len(readouts)
