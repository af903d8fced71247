"""Five levels of features."""

import pytest
import torch

from attmask.models.detection.features import Features
from tests.models.detection.detectors import small_detector


@pytest.mark.parametrize(
    ("patch_size", "strides", "size", "sides"),
    [
        (16, (4, 8, 16, 32, 64), 64, [16, 8, 4, 2, 1]),
        (8, (4, 8, 16, 32, 64), 64, [16, 8, 4, 2, 1]),
        (14, (3.5, 7, 14, 28, 56), 224, [64, 32, 16, 8, 4]),
    ],
)
def test_levels_have_their_strides(
    patch_size: int, strides: tuple[float, ...], size: int, sides: list[int]
) -> None:
    network = small_detector(patch_size=patch_size)
    maps = network.features(network.backbone, torch.randn(1, 3, size, size))
    assert network.features.strides == strides
    assert [tuple(level.shape) for level in maps] == [(1, 16, side, side) for side in sides]


def test_the_fifth_level_is_every_second_place_of_the_fourth() -> None:
    network = small_detector()
    maps = network.features(network.backbone, torch.randn(1, 3, 128, 128))
    assert torch.equal(maps[4], maps[3][:, :, ::2, ::2])


def test_the_fpn_has_no_norm() -> None:
    features = Features(small_detector().backbone, 16, norm=False)
    count = sum(parameter.numel() for parameter in features.fpn.parameters())
    # Four levels: 1 × 1 from width 48 to 16 channels, 3 × 3 from 16 to 16, both with a bias.
    assert count == 4 * (48 * 16 + 16 + 9 * 16 * 16 + 16)
