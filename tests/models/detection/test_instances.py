"""Instances, and masks pasted into the image."""

import pytest
import torch
import torch.nn.functional as F

from attmask.models.detection.instances import Instances, paste_masks
from tests.models.detection.detectors import instances


def test_instances_move_to_a_device_with_everything() -> None:
    moved = instances((1, 2, 3, 4)).to("meta")
    assert {t.device.type for t in (moved.boxes, moved.labels, moved.masks)} == {"meta"}
    assert moved.size_hw == (64, 64)


def test_a_full_mask_fills_the_pixels_whose_centres_are_in_the_box() -> None:
    pasted = paste_masks(
        torch.ones(2, 28, 28), torch.tensor([[2.0, 1, 6, 4], [0.6, 0.4, 2.4, 2]]), (6, 8)
    )
    wanted = torch.zeros(2, 6, 8, dtype=torch.bool)
    wanted[0, 1:4, 2:6] = True
    wanted[1, 0:2, 1:2] = True  # centres at 0.5 and 2.5 are left and right of it
    assert torch.equal(pasted, wanted)


def test_each_cell_of_a_mask_becomes_the_pixels_that_it_covers() -> None:
    mask = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]])
    pasted = paste_masks(mask, torch.tensor([[1.0, 1, 5, 5]]), (6, 6))
    # Centres of cells are at 2 and 4, those of pixels at 1.5, 2.5, 3.5 and 4.5: next to the
    # centre of a cell that is 1 the value is (3/4)² + (1/4)² = 0.625; outside of both centres,
    # at the corner, (3/4)² = 0.5625.
    wanted = torch.zeros(1, 6, 6, dtype=torch.bool)
    wanted[0, 1:3, 1:3] = wanted[0, 3:5, 3:5] = True
    assert torch.equal(pasted, wanted)


def test_a_box_beyond_the_border_is_cut_off_without_a_shift() -> None:
    mask = torch.zeros(1, 4, 4)
    mask[:, :, 2:] = 1  # the right half
    pasted = paste_masks(mask, torch.tensor([[-4.0, -4, 4, 4]]), (3, 8))
    assert pasted[0, :, :4].all()
    assert not pasted[0, :, 4:].any()


@pytest.mark.parametrize("box", [[3.0, 3, 3, 9], [-9.0, -9, -3, -3], [20.0, 20, 30, 30]])
def test_boxes_without_a_pixel_have_empty_masks(box: list[float]) -> None:
    assert not paste_masks(torch.ones(1, 28, 28), torch.tensor([box]), (10, 12)).any()


def test_no_masks_are_no_masks() -> None:
    assert paste_masks(torch.zeros(0, 28, 28), torch.zeros(0, 4), (5, 7)).shape == (0, 5, 7)


@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_only_the_reached_part_is_computed_and_equals_sampling_the_whole_image(
    threshold: float,
) -> None:
    generator = torch.Generator().manual_seed(0)
    masks = torch.rand(20, 28, 28, generator=generator)
    corners = torch.rand(20, 2, 2, generator=generator) * torch.tensor([120.0, 90.0]) - 10
    boxes = torch.cat([corners.amin(1), corners.amax(1)], dim=1)
    y, x = torch.meshgrid(torch.arange(70) + 0.5, torch.arange(100) + 0.5, indexing="ij")
    x1, y1, x2, y2 = (side[:, None, None] for side in boxes.unbind(1))
    grid = torch.stack([(x - x1) / (x2 - x1), (y - y1) / (y2 - y1)], dim=-1) * 2 - 1
    whole = F.grid_sample(masks[:, None], grid, align_corners=False)[:, 0]
    assert torch.equal(paste_masks(masks, boxes, (70, 100), threshold), whole >= threshold)


def test_shapes_are_checked() -> None:
    with pytest.raises(Exception, match="masks"):
        Instances(torch.zeros(1, 4), torch.zeros(1).long(), torch.zeros(2, 4, 4).byte(), (4, 4))
