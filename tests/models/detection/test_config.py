"""The settings of the detector: the paper's, and what is refused."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from attmask.models.detection.config import CascadeConfig, DetectorConfig, ProposalsConfig


def test_the_stages_are_three_of_rising_iou_and_falling_weight() -> None:
    cascade = DetectorConfig().cascade
    assert cascade.positive_iou == (0.5, 0.6, 0.7)
    assert cascade.loss_weights == (1.0, 0.5, 0.25)
    assert [stds[2] for stds in cascade.box_stds] == [0.2, 0.1, 0.067]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"loss_weights": (1.0, 0.5)}, "positive_iou has 3 stages, loss_weights 2, box_stds 3"),
        ({"positive_iou": (0.5, 0.6, 1.7)}, "must be above 0, at most 1"),
        ({"box_stds": ((0.1, 0.1, 0.2, 0.0),) * 3}, "box_stds must be above 0"),
        ({"samples": 3}, "leave no positive sample"),
    ],
)
def test_stages_that_do_not_fit_together_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        CascadeConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"negative_iou": 0.8}, "negative_iou=0.8 is above positive_iou=0.7"),
        ({"anchor_ratios": (0.0, 1.0)}, "not above 0"),
    ],
)
def test_proposals_that_make_no_sense_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(words)):
        ProposalsConfig(**settings)
