"""The F1 of one image, counted by hand."""

import numpy as np
import pytest
import torch

from attmask.data.coco import Annotated
from attmask.data.coco_masks import decode
from attmask.evaluation.metrics.detected import Found, image_f1

A, B, FAR = (0, 0, 10, 10), (20, 0, 30, 10), (60, 60, 70, 70)
NEAR_A = (0, 0, 10, 6)  # an IoU of 0.6


def truth(*objects: tuple[tuple[int, ...], int, bool]) -> Annotated:
    boxes = np.array([box for box, _, _ in objects], dtype=np.float32).reshape(-1, 4)
    count = len(objects)
    return Annotated(
        "image",
        (80, 80),
        np.arange(count),
        boxes,
        np.array([label for _, label, _ in objects], dtype=np.int64),
        np.array([crowd for _, _, crowd in objects], dtype=np.bool_),
        np.ones(count, dtype=np.float32),
        (None,) * count,
    )


def found(*objects: tuple[tuple[int, ...], int, float]) -> Found:
    boxes = np.array([box for box, _, _ in objects], dtype=np.float32).reshape(-1, 4)
    return Found(
        boxes,
        np.array([score for _, _, score in objects], dtype=np.float32),
        np.array([label for _, label, _ in objects], dtype=np.int64),
        None,
    )


BOTH = truth((A, 0, False), (B, 1, False))


@pytest.mark.parametrize(
    ("seen", "wanted", "f1"),
    [
        (found((A, 0, 0.9), (B, 1, 0.9)), BOTH, 100.0),
        (found((NEAR_A, 0, 0.9)), BOTH, 200 / 3),
        (found((A, 0, 0.4), (B, 1, 0.9)), BOTH, 200 / 3),
        (found((A, 1, 0.9)), BOTH, 0.0),
        (found((A, 0, 0.9), (NEAR_A, 0, 0.8), (B, 1, 0.9)), BOTH, 80.0),
        (found((FAR, 0, 0.9)), BOTH, 0.0),
        (found(), BOTH, 0.0),
        (found(), truth(), 100.0),
        (found((A, 0, 0.9)), truth(), 0.0),
        (found((A, 0, 0.9), (FAR, 0, 0.9)), truth((FAR, 0, True), (A, 0, False)), 100.0),
        (found((FAR, 1, 0.9)), truth((FAR, 0, True)), 0.0),
    ],
    ids=[
        "all",
        "one of two",
        "an unsure one is none",
        "a wrong class",
        "an object found twice",
        "elsewhere",
        "nothing",
        "nothing wanted",
        "nothing wanted, one found",
        "in a crowd",
        "in a crowd of another class",
    ],
)
def test_f1_counts_right_wrong_and_missed_boxes(seen: Found, wanted: Annotated, f1: float) -> None:
    assert image_f1(seen, wanted) == pytest.approx(f1)


def test_tensors_become_run_lengths() -> None:
    masks = torch.rand(2, 9, 7, generator=torch.Generator().manual_seed(0)) > 0.5
    seen = Found.of(torch.rand(2, 4), torch.rand(2), torch.tensor([1, 0]), masks.split(1))
    assert seen.rles is not None
    assert np.array_equal(decode(seen.rles, (7, 9)), masks.numpy())
    assert len(seen) == 2
    assert Found.of(torch.rand(0, 4), torch.rand(0), torch.ones(0), None).rles is None
