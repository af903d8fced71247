"""The code of docs/extending.md does what it says."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import attmask
from attmask.api import pretrain
from attmask.evaluation.datasets.labelled import Labelled
from attmask.evaluation.features.crops import center_crop
from attmask.evaluation.task import Task
from attmask.mask import Mask
from tests.runs import SHORT

BLOCKS = re.findall(
    r"```python\n(.*?)```",
    (Path(__file__).parents[2] / "docs" / "extending.md").read_text(),
    flags=re.DOTALL,
)


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("extending") / "run"
    pretrain(scenes, recipe="tiny", out=out, overrides=[*SHORT, "monitor.knn_every_epochs=0"])
    return out


def test_a_variant_of_a_task_is_measured_like_any_other(run: Path, scenes: Path) -> None:
    variant = BLOCKS[0].replace('"runs/birds-small"', repr(str(run)))
    made: dict[str, object] = {}
    exec(variant.replace('"birds"', repr(str(scenes))), made)
    cards = made["cards"]
    assert isinstance(cards, list)
    assert [card.task for card in cards] == ["knn-gap"]


def test_a_protocol_of_ones_own_is_measured_like_any_other(run: Path, scenes: Path) -> None:
    made: dict[str, object] = {}
    exec(BLOCKS[1], made)
    protocol = made["NearestMean"]
    assert isinstance(protocol, type)
    task = Task("nearest-mean", protocol(), Labelled(), 1, "the nearest mean")
    (card,) = attmask.evaluate(run, task, data=scenes, workers=0)
    assert 0 <= card.values["nearest_mean.top1"] <= 100


def test_a_task_on_dense_features_takes_fewer_than_forty_lines(run: Path, scenes: Path) -> None:
    made: dict[str, Any] = {}
    exec(BLOCKS[2], made)
    assert len([line for line in BLOCKS[2].splitlines() if line.strip()]) < 40
    cards = attmask.evaluate([run, f"{run}@untrained"], made["task"], data=scenes, workers=0)
    truth = is_object_by_hand(scenes)
    for card in cards:
        # At least as good as calling every patch an object: the maps are where the masks are.
        assert 100 * truth < card.values["label_transfer.iou"] < 100


def is_object_by_hand(scenes: Path) -> float:
    """The share of patches of 8 pixels that mostly show an object, in all held-out scenes."""
    shares = []
    for file in sorted((scenes / "masks" / "val").rglob("*.png")):
        with Image.open(file) as opened:
            crop = np.asarray(center_crop(opened.convert("L"), 32, Image.Resampling.NEAREST))
        shares.append(((crop > 0).reshape(4, 8, 4, 8).mean(axis=(1, 3)) > 0.5).mean())
    return float(np.mean(shares))


def test_a_strategy_of_ones_own_makes_masks() -> None:
    class MyStrategy:
        ratio_per = "step"

        def __call__(self, attention: torch.Tensor, grid: object, draws: object) -> Mask:
            return Mask.count(attention > attention.mean(dim=1, keepdim=True))

    attention = torch.rand(8, 196).softmax(dim=-1)
    made: dict[str, object] = {"MyStrategy": MyStrategy, "attention": attention, "step": 0}
    exec(BLOCKS[3], made)
    mask = made["mask"]
    assert isinstance(mask, torch.Tensor)
    assert mask.any()


def test_the_masking_in_other_code_hides_what_another_network_attends_to() -> None:
    made: dict[str, Any] = {}
    exec(BLOCKS[4], made)
    assert made["attention"].shape == made["mask"].shape == (8, 196)
    assert torch.equal(made["attention"], made["watched"].mean)
    for row, hidden in zip(made["attention"], made["mask"], strict=True):
        assert not hidden.any() or row[hidden].min() >= row[~hidden].max()
