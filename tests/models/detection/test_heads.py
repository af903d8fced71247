"""Box and mask heads: shapes, sizes, initial weights."""

import pytest
import torch
from torch import nn

from attmask.models.detection.config import CascadeConfig
from attmask.models.detection.heads import BoxHead, MaskHead, of_class

CONFIG = CascadeConfig(channels=6, hidden=10)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_a_box_head_has_convolutions_with_batch_norm_one_layer_and_two_outputs() -> None:
    head = BoxHead(5, 3, CONFIG)
    convs = (9 * 5 * 6) + 3 * (9 * 6 * 6) + 4 * 2 * 6  # no bias, but weight and bias of the norm
    hidden = 7 * 7 * 6 * 10 + 10
    assert _count(head) == convs + hidden + (10 * 4 + 4) + (10 * 12 + 12)
    logits, changes = head(torch.randn(2, 5, 7, 7))
    assert logits.shape == (2, 4)
    assert changes.shape == (2, 3, 4)


def test_a_mask_head_has_convolutions_without_norm_and_doubles_the_side() -> None:
    head = MaskHead(5, 3, CONFIG)
    convs = (9 * 5 * 6 + 6) + 3 * (9 * 6 * 6 + 6)
    assert _count(head) == convs + (4 * 6 * 6 + 6) + (6 * 3 + 3)
    assert head(torch.randn(2, 5, 14, 14)).shape == (2, 3, 28, 28)


def test_of_coco_the_paper_s_heads_have_so_many_parameters() -> None:
    with torch.device("meta"):
        box, mask = BoxHead(256, 80, CascadeConfig()), MaskHead(256, 80, CascadeConfig())
    convs = 4 * 9 * 256 * 256
    assert _count(box) == convs + 4 * 2 * 256 + (256 * 49 + 1) * 1024 + 1025 * (81 + 320)
    assert _count(mask) == convs + 4 * 256 + (4 * 256 + 1) * 256 + 257 * 80


def test_changes_start_small_and_logits_near_zero() -> None:
    torch.manual_seed(0)
    head = BoxHead(16, 20, CascadeConfig(channels=16, hidden=512))
    assert head.classes.weight.std().item() == pytest.approx(0.01, rel=0.05)
    assert head.boxes.weight.std().item() == pytest.approx(0.001, rel=0.05)
    assert not head.classes.bias.any()
    assert not head.boxes.bias.any()


def test_outputs_are_float32_under_autocast() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        outputs = [*BoxHead(5, 3, CONFIG)(torch.randn(2, 5, 7, 7))]
        outputs.append(MaskHead(5, 3, CONFIG)(torch.randn(2, 5, 14, 14)))
    assert {output.dtype for output in outputs} == {torch.float32}


@pytest.mark.parametrize("autocast", [False, True])
def test_a_mask_head_without_regions_has_gradients_of_zero(autocast: bool) -> None:
    head = MaskHead(5, 3, CONFIG)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        head(torch.zeros(0, 5, 14, 14)).sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in head.parameters())


def test_one_class_of_each_row_is_taken() -> None:
    values = torch.arange(12.0).reshape(2, 3, 2)
    assert of_class(values, torch.tensor([2, 0])).tolist() == [[4, 5], [6, 7]]
