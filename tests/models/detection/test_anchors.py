"""Anchors by hand."""

import pytest
import torch
from torch import Tensor
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList

from attmask.models.detection.anchors import Anchors


def _of(anchors: Anchors, *maps: tuple[int, int], images: int = 1) -> list[Tensor]:
    batch = ImageList(torch.zeros(images, 3, 8, 8), [(8, 8)] * images)
    return list(anchors(batch, [torch.zeros(images, 1, *size) for size in maps]))


def test_the_anchors_of_a_place_have_one_area_and_three_ratios() -> None:
    (boxes,) = _of(Anchors([4.0], 8.0, (0.5, 1.0, 2.0)), (1, 1))
    # 8 × 4 = 32 pixels; 32 × sqrt(2) = 45.2548, 32 / sqrt(2) = 22.6274; around the corner (0, 0).
    wanted = [
        [-22.6274, -11.3137, 22.6274, 11.3137],
        [-16.0, -16.0, 16.0, 16.0],
        [-11.3137, -22.6274, 11.3137, 22.6274],
    ]
    torch.testing.assert_close(boxes, torch.tensor(wanted), rtol=0, atol=1e-4)


def test_places_come_row_by_row_then_level_by_level() -> None:
    (boxes,) = _of(Anchors([4.0, 8.0], 2.0, (1.0,)), (2, 2), (1, 2))
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    assert centres.tolist() == [[0, 0], [4, 0], [0, 4], [4, 4], [0, 0], [8, 0]]
    assert (boxes[:, 2] - boxes[:, 0]).tolist() == [8, 8, 8, 8, 16, 16]


def test_strides_of_patches_of_14_pixels_are_exact() -> None:
    (boxes,) = _of(Anchors([3.5], 8.0, (1.0,)), (1, 3))
    assert boxes.tolist() == [[-14, -14, 14, 14], [-10.5, -14, 17.5, 14], [-7, -14, 21, 14]]


def test_they_are_those_of_torchvision_where_it_rounds_nothing() -> None:
    images = ImageList(torch.zeros(2, 3, 64, 96), [(64, 96)] * 2)
    maps = [torch.zeros(2, 1, 16, 24), torch.zeros(2, 1, 8, 12)]
    theirs = AnchorGenerator(((32,), (64,)), ((1.0,),) * 2)(images, maps)
    ours = Anchors([4.0, 8.0], 8.0, (1.0,))(images, maps)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_they_are_float32_whatever_the_features_are(dtype: torch.dtype) -> None:
    images = ImageList(torch.zeros(1, 3, 8, 8), [(8, 8)])
    (boxes,) = Anchors([3.5], 8.0, (0.5,))(images, [torch.zeros(1, 1, 2, 2, dtype=dtype)])
    assert boxes.dtype == torch.float32
