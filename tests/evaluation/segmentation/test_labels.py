import numpy as np
import pytest
import torch
from torch.nn import functional

from attmask.evaluation.segmentation import labels as module
from attmask.evaluation.segmentation.labels import best_classes, class_shares, squeezed_labels


@pytest.mark.parametrize("size_hw", [(6, 9), (3, 20), (16, 8), (8, 8)])
def test_squeezed_labels_are_those_of_the_nearest_pixels(size_hw: tuple[int, int]) -> None:
    labels = np.random.default_rng(0).integers(-1, 5, size_hw).astype(np.int16)
    found = squeezed_labels(labels, 8)
    wanted = functional.interpolate(
        torch.from_numpy(labels).float()[None, None], (8, 8), mode="nearest-exact"
    )
    assert torch.equal(found.float(), wanted[0, 0])


def test_shares_are_of_the_labelled_pixels_of_each_patch() -> None:
    labels = torch.tensor(
        [[0, 0, 1, -1], [0, 2, -1, -1], [-1, -1, 2, 2], [-1, -1, 1, 2]], dtype=torch.int16
    )
    found = class_shares(labels, 2, 3)
    wanted = [[0.75, 0, 0.25], [0, 1, 0], [0, 0, 0], [0, 0.25, 0.75]]
    assert found.tolist() == wanted, "row by row; the third patch has no label"


def test_pixels_have_the_best_class_of_the_resized_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.randn(7, 4, 4, generator=torch.Generator().manual_seed(0))
    resized = functional.interpolate(scores[None], (30, 22), mode="bilinear", align_corners=False)
    wanted = resized[0].argmax(dim=0)
    assert torch.equal(best_classes(scores, (30, 22)), wanted)
    monkeypatch.setattr(module, "_NUMBERS_AT_ONCE", 2 * 30 * 22)
    assert torch.equal(best_classes(scores, (30, 22)), wanted), "two classes at a time"


def test_equal_scores_go_to_the_lower_class() -> None:
    assert best_classes(torch.zeros(3, 2, 2), (4, 4)).unique().tolist() == [0]
