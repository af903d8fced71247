"""The code of docs/extending.md does what it says."""

import re
from pathlib import Path

import pytest
import torch

import attmask
from attmask.api import pretrain
from attmask.evaluation.datasets.labelled import Labelled
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


def test_a_strategy_of_ones_own_makes_masks() -> None:
    class MyStrategy:
        ratio_per = "step"

        def __call__(self, attention: torch.Tensor, grid: object, draws: object) -> Mask:
            return Mask.count(attention > attention.mean(dim=1, keepdim=True))

    attention = torch.rand(8, 196).softmax(dim=-1)
    made: dict[str, object] = {"MyStrategy": MyStrategy, "attention": attention, "step": 0}
    exec(BLOCKS[2], made)
    mask = made["mask"]
    assert isinstance(mask, torch.Tensor)
    assert mask.any()
