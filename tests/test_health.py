"""Measures of a step: known values on made-up tensors, and the same on one process and several."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attmask.agreement import mean_metrics
from attmask.config import PretrainConfig
from attmask.data.views import Views
from attmask.distributed import share_of
from attmask.hardware import Precision
from attmask.health import (
    FEATURES,
    OUTLIER,
    Health,
    attention_entropy,
    attention_outliers,
    contrast,
    effective_rank,
    features_of_all,
    health_metrics,
    spread,
)
from attmask.metric import values_by_key
from attmask.models.backbone import Summary
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules
from attmask.step import StepReport, compute_gradients
from tests.groups import in_group

CPU = torch.device("cpu")
KEYS = [
    "health.feature_rank",
    "health.feature_spread",
    "health.attention_entropy",
    "health.attention_outliers",
    "health.view_contrast",
]


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_uniform_attention_has_an_entropy_of_one_and_a_single_patch_has_zero() -> None:
    assert attention_entropy(torch.full((3, 16), 0.05)) == pytest.approx(1)
    assert attention_entropy(torch.eye(3, 16)) == 0
    half = torch.zeros(2, 16)
    half[:, :4] = 0.1
    assert attention_entropy(half) == pytest.approx(math.log(4) / math.log(16))


def test_an_image_of_one_patch_has_no_entropy() -> None:
    assert attention_entropy(torch.ones(2, 1)) == 0


def test_attention_on_planted_tokens_of_large_norm_is_found_whatever_the_scale() -> None:
    attention, norms = torch.full((2, 10), 0.05), 1 + 0.1 * noise(2, 10).abs()
    assert attention_outliers(attention, norms) == 0
    attention[0, 3], norms[0, 3] = 0.55, 10.0
    for scale in (0.01, 1, 100):
        # 0.55 of 1 in the first image, nothing in the second
        assert attention_outliers(attention, scale * norms) == pytest.approx(0.55 / 2)
    assert attention_outliers(2 * attention, norms) == pytest.approx(0.55 / 2)


def test_an_outlier_has_several_times_the_median_norm() -> None:
    attention = torch.full((1, 5), 0.2)
    below = torch.tensor([[1.0, 1.0, 1.0, 1.0, OUTLIER]])
    assert attention_outliers(attention, below) == 0
    assert attention_outliers(attention, 1.01 * below - 0.01) == pytest.approx(0.2)


def test_features_that_are_all_alike_have_rank_one_and_no_spread() -> None:
    alike = noise(1, 24).double().expand(16, 24)
    assert effective_rank(alike) == pytest.approx(1, abs=1e-3)
    assert spread(alike) == pytest.approx(0, abs=1e-9)
    assert effective_rank(torch.zeros(16, 24).double()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("rank", [2, 5, 16])
def test_orthogonal_features_have_the_rank_of_their_number(rank: int) -> None:
    rows = torch.eye(16, 24).double()[torch.arange(80) % rank]
    assert effective_rank(rows) == pytest.approx(rank, rel=1e-3)
    assert spread(rows) == pytest.approx(1 - 1 / rank, abs=0.02)
    assert effective_rank(7 * rows) == pytest.approx(effective_rank(rows))


def test_the_rank_is_that_of_the_evaluations() -> None:
    from attmask.evaluation.metrics.geometry import effective_rank as of_evaluations

    for shape in ((40, 24), (8, 24)):
        features = noise(*shape).double() + 1
        assert effective_rank(features) == pytest.approx(of_evaluations(features), rel=1e-3)


def test_a_blank_view_has_no_contrast_and_noise_has_its_deviation() -> None:
    assert contrast(torch.full((2, 3, 8, 8), 1234.5)) == 0
    assert contrast(3 + 2 * noise(4, 3, 64, 64)) == pytest.approx(2, rel=0.02)


def test_health_is_a_mean_over_micro_batches_and_rank_that_of_all_features() -> None:
    def part(seed: int) -> Health:
        summary = Summary(noise(4, 8, seed=seed), torch.full((4, 9), 0.1), torch.ones(4, 9))
        return Health.of(summary, Views(noise(2, 2, 3, 8, 8), torch.zeros(0, 2, 3, 4, 4)))

    parts = [part(0), part(1)]
    found = health_metrics(parts)
    assert [metric.key for metric in found] == KEYS
    values = values_by_key(found)
    together = torch.cat([each.features for each in parts]).double()
    assert values["health.feature_rank"] == pytest.approx(effective_rank(together))
    assert values["health.feature_spread"] == pytest.approx(spread(together))
    assert values["health.attention_entropy"] == pytest.approx(1)
    assert values["health.attention_outliers"] == 0


def test_rank_uses_a_bounded_number_of_features() -> None:
    assert len(features_of_all([noise(FEATURES, 4), noise(FEATURES, 4)])) == FEATURES


# In a step


def observed(config: PretrainConfig, images: int = 8, **settings: bool) -> StepReport:
    """The first step on noise, of this process's share."""
    distiller = build_distiller(config).double()
    optimizer = build_optimizer(distiller.student, config.optim)
    share = share_of(images)
    mine = slice(share.start, share.stop)
    whole, local = noise(2, images, 3, 32, 32).double(), noise(2, images, 3, 16, 16).double()
    return compute_gradients(
        distiller,
        optimizer,
        Views(whole[:, mine], local[:, mine], share.start),
        Schedules(config.schedule, steps_per_epoch=2, batch_size=images).at(1),
        Precision.choose("fp32", CPU),
        accumulate=config.train.accumulate,
        **settings,
    )


CASES = pytest.mark.parametrize(
    "overrides",
    [
        ["loss.centring=mean"],
        ["loss.centring=sinkhorn"],
        ["loss.patch_weight=0"],
        ["masking.strategy=random", "train.accumulate=2"],
    ],
    ids=" ".join,
)


@CASES
def test_the_health_of_a_step_is_the_same_on_several_processes(
    overrides: list[str], tmp_path: Path
) -> None:
    config = override(load_recipe("tiny"), overrides)

    def measured(rank: int) -> dict[str, float]:
        return values_by_key(mean_metrics(observed(config, observe=True).metrics()))

    alone = measured(0)
    assert set(KEYS) < set(alone)
    for of_one in in_group(2, tmp_path / "group", measured):
        few = {"health.prototypes_used"} if config.train.accumulate > 1 else set()
        for key in alone.keys() - few:  # a mean over micro-batches, which have other images
            assert of_one[key] == pytest.approx(alone[key], rel=1e-6), key


def test_a_step_that_is_not_observed_has_only_what_it_computes_anyway() -> None:
    config = load_recipe("tiny")
    plain, more = observed(config).metrics(), observed(config, observe=True).metrics()
    assert plain == more[: len(plain)]
    assert [metric.key for metric in more[len(plain) :]] == KEYS


def test_kl_is_zero_where_the_student_predicts_the_target_and_positive_elsewhere() -> None:
    """Without crops, masks and drop path the student sees what the teacher sees, and is it."""
    same = [
        "views.local_crops=0",
        "masking.strategy=none",
        "loss.patch_weight=0",
        "backbone.drop_path=0",
        "loss.student_temperature=0.04",
    ]
    config = override(load_recipe("tiny"), same)
    distiller = build_distiller(config)
    one = noise(1, 8, 3, 32, 32).expand(2, -1, -1, -1, -1)
    now = Schedules(config.schedule, steps_per_epoch=2, batch_size=8).at(1)
    optimizer = build_optimizer(distiller.student, config.optim)
    fp32 = Precision.choose("fp32", CPU)

    def kl(views: Views) -> float:
        report = compute_gradients(distiller, optimizer, views, now, fp32)
        return values_by_key(report.metrics())["health.kl"]

    none = torch.zeros(0, 8, 3, 16, 16)
    assert kl(Views(one, none)) == pytest.approx(0, abs=1e-5)
    assert kl(Views(noise(2, 8, 3, 32, 32), none)) > 0.01
