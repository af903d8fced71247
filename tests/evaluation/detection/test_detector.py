"""A trained detector: masks of all sizes become run lengths without filling the memory."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from attmask.data.coco_masks import encode
from attmask.data.config import DataConfig
from attmask.evaluation.detection import detector as module
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.metrics.detected import Found
from attmask.evaluation.showing import Showing
from attmask.models.detection.detector import Detector
from attmask.models.detection.instances import Detections, paste_masks
from tests.evaluation.models import tiny_backbone

SIZE_HW = (24, 40)


class Several(Detector):
    """Finds as many random objects as it is told, in any image."""

    def __init__(self, count: int) -> None:
        nn.Module.__init__(self)
        self.backbone = tiny_backbone()
        draw = torch.Generator().manual_seed(0)
        corners = torch.rand(count, 2, generator=draw) * 10
        sides = 3 + 10 * torch.rand(count, 2, generator=draw)
        boxes = torch.cat([corners, corners + sides], dim=1)
        masks = torch.rand(count, 28, 28, generator=draw)
        labels = torch.zeros(count, dtype=torch.int64)
        self.found = Detections(boxes, torch.rand(count, generator=draw), labels, masks)

    def detect(self, images: Tensor, sizes_hw: object) -> list[Detections]:
        return [self.found]


def found_by(network: Several, size_hw: tuple[int, int] = SIZE_HW) -> Found:
    detector = TrainedDetector(network, ("thing",), (1,), Showing(DataConfig(), (60, 30)))
    shown = torch.zeros(3, *SIZE_HW, dtype=torch.uint8)
    return detector.find(shown, size_hw, nullcontext)


@pytest.fixture
def pasted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of pixels that were pasted at a time, with room for two masks and a half."""
    pixels = []

    def counting(masks: Tensor, boxes: Tensor, size_hw: tuple[int, int]) -> Tensor:
        chunk = paste_masks(masks, boxes, size_hw)
        pixels.append(chunk.numel())
        return chunk

    monkeypatch.setattr(module, "paste_masks", counting)
    monkeypatch.setattr(module, "_MOST_PIXELS", 5 * SIZE_HW[0] * SIZE_HW[1] // 2)
    return pixels


def test_masks_in_chunks_are_those_of_all_at_once(pasted: list[int]) -> None:
    network = Several(5)
    one = SIZE_HW[0] * SIZE_HW[1]
    wanted = paste_masks(network.found.masks, network.found.boxes, SIZE_HW)
    assert wanted.flatten(1).any(dim=1).all()
    assert found_by(network).rles == tuple(encode(wanted.numpy()))
    assert pasted == [2 * one, 2 * one, one]


def test_one_mask_is_pasted_at_a_time_where_none_would_fit(pasted: list[int]) -> None:
    large = SIZE_HW[0] * 4, SIZE_HW[1] * 4
    assert found_by(Several(3), large).rles is not None
    assert pasted == [large[0] * large[1]] * 3


def test_nothing_found_has_no_masks() -> None:
    assert found_by(Several(0)).rles == ()
