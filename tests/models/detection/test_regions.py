"""Features of boxes from the level of their size."""

import pytest
import torch
from torchvision.ops import roi_align

from attmask.models.detection.regions import RegionPooler

POOLER = RegionPooler((4.0, 8.0, 16.0, 32.0), 56.0)


@pytest.mark.parametrize(
    ("side", "level"),
    [
        (0, 0),
        (1, 0),
        (56, 0),
        (111, 0),
        (112, 1),
        (223, 1),
        (224, 2),
        (447, 2),
        (448, 3),
        (2000, 3),
    ],
)
def test_the_level_is_one_coarser_per_octave_from_112_pixels(side: float, level: int) -> None:
    boxes = torch.tensor([[5.0, 5, 5 + side, 5 + side], [0, 0, side / 2, side * 2]])
    assert POOLER.levels(boxes).tolist() == [level, level]


def test_boxes_are_pooled_each_from_its_level_in_their_order() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = [torch.randn(2, 3, 128 // 2**i, 160 // 2**i, generator=generator) for i in range(4)]
    boxes = [
        torch.tensor([[3.0, 3, 500, 503], [7.3, 8, 40, 70], [10, 10, 170, 130]]),
        torch.tensor([[100.0, 90, 400, 300], [0, 0, 5, 9]]),
    ]
    levels = [[3, 0, 1], [2, 0]]
    pooled = POOLER(maps, boxes, 7)
    wanted = [
        roi_align(maps[level][image : image + 1], [box[None]], 7, 1 / 2 ** (level + 2), 0, True)
        for image, (part, chosen) in enumerate(zip(boxes, levels, strict=True))
        for box, level in zip(part, chosen, strict=True)
    ]
    torch.testing.assert_close(pooled, torch.cat(wanted))


def test_features_of_a_ramp_are_the_places_of_the_cells() -> None:
    ramp = (torch.arange(40) + 0.5).mul(4).expand(1, 1, 40, 40)  # x in pixels, at stride 4
    pooled = RegionPooler((4.0,), 56.0)([ramp], [torch.tensor([[20.0, 20, 90, 90]])], 7)
    wanted = torch.arange(25.0, 90, 10).expand(7, 7)
    torch.testing.assert_close(pooled[0, 0], wanted)


def test_features_are_float32_and_every_level_has_a_gradient() -> None:
    maps = [torch.randn(1, 2, 8, 8, dtype=torch.bfloat16, requires_grad=True) for _ in range(4)]
    with torch.autocast("cpu", torch.bfloat16):
        pooled = POOLER(maps, [torch.tensor([[1.0, 1, 9, 9]])], 3)
    assert pooled.dtype == torch.float32
    pooled.sum().backward()
    gradients = [level.grad for level in maps]
    assert all(gradient is not None for gradient in gradients)
    assert [bool(gradient.any()) for gradient in gradients if gradient is not None] == [
        True,
        False,
        False,
        False,
    ]


def test_no_boxes_have_no_features_but_gradients() -> None:
    maps = [torch.randn(2, 2, 8, 8, requires_grad=True) for _ in range(4)]
    pooled = POOLER(maps, [torch.zeros(0, 4), torch.zeros(0, 4)], 3)
    assert pooled.shape == (0, 2, 3, 3)
    pooled.sum().backward()
    assert all(level.grad is not None for level in maps)
