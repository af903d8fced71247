"""The watch in real trainings: each collapse is provoked and named, healthy runs are left alone."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from timm.layers import Attention

from attmask.collapse import ATTENTION_GRACE_STEPS, Kind
from attmask.config import PretrainConfig
from attmask.data.sources import open_images
from attmask.data.synthetic import write_folder
from attmask.models.backbone import Backbone
from attmask.monitor import read_metrics
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.train import Trainer
from attmask.watch import GRACE_STEPS, WINDOW_STEPS
from tests.real_data import FOLDER, needs
from tests.runs import SHORT

NAMED_WITHIN = GRACE_STEPS + WINDOW_STEPS
"""Steps until a collapse that is there from the start is named."""
QUICK = override(
    load_recipe("tiny"),
    [
        *SHORT,
        "monitor.log_every_steps=10",
        "monitor.knn_every_epochs=0",
        "schedule.epochs=34",  # 204 steps of 8 images
        "views.local_crops=0",
        "backbone.init_std=0.14",
        "backbone.drop_path=0",
        "loss.centring=sinkhorn",
        "schedule.momentum=0.95",
        "schedule.momentum_final=0.995",
        "schedule.cls_temperature=[0.01,0.01]",
        "schedule.patch_temperature=[0.01,0.01]",
        "schedule.freeze_last_layer_epochs=0",
        "schedule.lr=32e-3",  # 1e-3 at a batch of 8
    ],
)
"""The recipe of the demo for a smaller network."""
STILL = "schedule.lr=1e-6"


def temperature(value: float) -> list[str]:
    return [f"schedule.{of}_temperature=[{value},{value}]" for of in ("cls", "patch")]


class SameViews(Trainer):
    """A trainer that shows the views of the first epoch in every epoch: making them is half of
    the time of so small a network."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        first = list(self.loader.epoch(0))
        self.loader.epoch = lambda epoch, start_step=0: iter(first[start_step:])  # type: ignore[method-assign]


def trainer(
    images: Path, run: Path, config: PretrainConfig, kind: type[Trainer] = SameViews
) -> Trainer:
    return kind(config, open_images(images).train, run)


def warned(made: Trainer, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of a whole training."""
    with caplog.at_level(logging.WARNING, "attmask.step_log"):
        assert made.train().finished
    return [
        record.message
        for record in caplog.records
        if record.name == "attmask.step_log" and record.levelno == logging.WARNING
    ]


NOT_QUICK = pytest.mark.slow
PROVOKED = [
    pytest.param(
        "one_prototype",
        ["loss.centring=mean", "loss.centre_momentum=0.999999", *temperature(0.04)],
        id="no centring",
        marks=NOT_QUICK,
    ),
    pytest.param("uniform_targets", temperature(1), id="temperature too high"),
    pytest.param("flat_features", ["schedule.lr=4"], id="learning rate too high"),
    pytest.param(
        "sharp_targets",
        ["loss.centring=mean", *temperature(1e-4), STILL],
        id="temperature too low",
        marks=NOT_QUICK,
    ),
    pytest.param(
        "diverging",
        ["loss.centring=mean", *temperature(1e-4), STILL],
        id="no learning from one-hot targets",
        marks=NOT_QUICK,
    ),
    pytest.param(
        "uniform_attention",
        ["backbone.init_std=0.02", "schedule.epochs=68", STILL],
        id="initial weights too small",
        marks=NOT_QUICK,
    ),
]


@pytest.mark.parametrize(("kind", "settings"), PROVOKED)
def test_a_collapse_is_named_with_the_setting_that_provoked_it(
    kind: Kind,
    settings: list[str],
    scenes: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = trainer(scenes, tmp_path / "run", override(QUICK, settings))
    lines = warned(made, caplog)
    found = {finding.kind: finding for finding in made.told.watch.findings}
    assert kind in found
    later = ATTENTION_GRACE_STEPS - GRACE_STEPS if kind == "uniform_attention" else 0
    assert found[kind].step <= NAMED_WITHIN + later
    assert f"step {found[kind].step}: {found[kind].text}" in lines
    assert len(lines) == len(found), "each is told once"
    changed = {setting.split("=")[0] for setting in settings} - {"schedule.lr", "schedule.epochs"}
    assert any(key in found[kind].text for key in changed or {"schedule.lr"})


def test_blank_images_are_named_and_not_what_follows_from_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "images").mkdir()
    for number in range(48):
        Image.new("L", (32, 32), 5 * number).save(tmp_path / "images" / f"{number}.png")
    made = trainer(tmp_path / "images", tmp_path / "run", QUICK)
    (line,) = warned(made, caplog)
    (found,) = made.told.watch.findings
    assert found.kind == "blank_images"
    assert found.step <= NAMED_WITHIN
    assert line == f"step {found.step}: {found.text}"


def plant_outliers_(backbone: Backbone, places: list[int]) -> None:
    """Make patches at some places large in the first number, and `[CLS]` attend to that."""
    vit, block = backbone.vit, backbone.blocks[backbone.layer]
    assert vit.pos_embed is not None
    assert isinstance(block.attn, Attention)
    qkv, width = block.attn.qkv, backbone.width
    with torch.no_grad():
        vit.pos_embed[:, [1 + place for place in places], 0] += 100
        qkv.bias[:width] = 1  # every query
        qkv.weight[width : 2 * width, 0] = 1  # the key of what is large there


@pytest.mark.parametrize(
    "strategy",
    [
        "high",
        pytest.param("hint", marks=NOT_QUICK),
        pytest.param("random", marks=NOT_QUICK),
    ],
)
def test_planted_outlier_tokens_are_named_where_masks_follow_them(
    strategy: str, scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = override(QUICK, [f"masking.strategy={strategy}", STILL])
    made = trainer(scenes, tmp_path / "run", config)
    for network in (made.distiller.student, made.distiller.teacher):
        plant_outliers_(network.backbone, [3, 12])
    warned(made, caplog)
    found = [finding.kind for finding in made.told.watch.findings]
    assert ("attention_outliers" in found) == (strategy != "random")
    last = [record for record in read_metrics(tmp_path / "run") if "loss.total" in record][-1]
    assert last["health.attention_outliers"] > 90


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["high", "block"])
def test_a_healthy_training_raises_no_warning(
    strategy: str, scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = override(QUICK, [f"masking.strategy={strategy}"])
    made = trainer(scenes, tmp_path / "run", config, Trainer)
    assert warned(made, caplog) == []
    assert made.told.watch.findings == ()


def test_without_the_watch_nothing_more_is_measured_and_the_training_is_the_same(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = override(QUICK, ["schedule.epochs=4"])
    with_it = trainer(scenes, tmp_path / "with", config)
    without = trainer(scenes, tmp_path / "without", override(config, ["monitor.watch=false"]))
    for made in (with_it, without):
        warned(made, caplog)
    for ours, theirs in zip(
        with_it.distiller.parameters(), without.distiller.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs)
    more = read_metrics(tmp_path / "with")[0].keys() - read_metrics(tmp_path / "without")[0].keys()
    assert more == {
        "health.feature_rank",
        "health.feature_spread",
        "health.attention_entropy",
        "health.attention_outliers",
        "health.view_contrast",
    }


# Ten healthy runs, of which some use the running mean

SMALLER = [
    *SHORT,
    "train.batch_size=16",
    "schedule.lr=8e-3",  # 5e-4 at a batch of 16
    "views.local_crops=0",
    "monitor.knn_every_epochs=0",
]
MEAN = [
    "loss.centring=mean",
    *temperature(0.04),
    "schedule.momentum=0.98",
    "schedule.momentum_final=1",
]
STRATEGIES = ("high", "hint", "low", "random", "block")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_ten_healthy_trainings_raise_no_warning(
    seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_folder(tmp_path / "images", train=400, val=1, size=64, seed=seed)
    settings = [f"masking.strategy={STRATEGIES[seed % 5]}", *(MEAN if seed >= 5 else [])]
    given = [*SMALLER, f"seed={seed}", "schedule.epochs=10", *settings]  # 250 steps
    config = override(load_recipe("demo"), given)
    made = trainer(tmp_path / "images", tmp_path / "run", config, Trainer)
    assert warned(made, caplog) == []
    assert np.isfinite([record["health.kl"] for record in read_metrics(tmp_path / "run")]).all()


@pytest.mark.slow
@needs("imagenette128")
@pytest.mark.parametrize("more", [[], [*MEAN, "backbone.init_std=0.02"]], ids=["sinkhorn", "mean"])
def test_a_healthy_training_on_photographs_raises_no_warning(
    more: list[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = ["views.global_size=48", "data.per_class=40", "schedule.epochs=10"]  # 250 steps
    given = [*SMALLER, *given, *more]
    config = override(load_recipe("cpu"), given)
    made = trainer(FOLDER / "imagenette128", tmp_path / "run", config, Trainer)
    assert warned(made, caplog) == []
