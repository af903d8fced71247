"""A step of dense prediction: micro-batches, draws by counter, and steps that are skipped."""

import copy

import pytest
import torch
from torch import Tensor, nn

from attmask.dense.statistics import Statistics
from attmask.dense.step import DenseReport, compute_gradients, update_
from attmask.detection.batch import DetectBatch
from attmask.hardware import Precision
from attmask.metric import values_by_key
from attmask.models.detection.detector import Detector
from attmask.models.upernet import Segmenter
from attmask.schedules import Now
from attmask.segmentation.batch import SegmentBatch
from attmask.tuning.config import TunedOptimConfig
from attmask.tuning.optim import build_optimizer
from attmask.tuning.tuner import Tuner
from tests.models.detection.detectors import drawn, instances, small_detector
from tests.models.test_upernet import pictures, small_segmenter, some_labels

FP32 = Precision.choose("fp32", torch.device("cpu"))
NOW = Now(3, 0, 1e-3)
IMAGES = 4


def tuner(network: Segmenter, **settings: object) -> Tuner[Segmenter]:
    known: dict[str, object] = {"drop_path": 0.0, "ema": None, "seed": 5}
    return Tuner(network.train(), **{**known, **settings})  # type: ignore[arg-type]


def batch(count: int = IMAGES) -> SegmentBatch:
    return SegmentBatch(pictures(count), some_labels(count), torch.arange(count), 0)


def without_batch_norm(network: Segmenter) -> Segmenter:
    """The same network with statistics that do not depend on the batch."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
            vars(module)["train"] = lambda mode=True, own=module: own
    return network


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


def learned(tuned: Tuner[Segmenter], shown: SegmentBatch, now: Now, parts: int = 1) -> DenseReport:
    optimizer = build_optimizer(tuned.network, TunedOptimConfig())
    return compute_gradients(tuned, optimizer, shown, now, FP32, accumulate=parts)


def values(report: DenseReport) -> dict[str, float]:
    return values_by_key(report.metrics())


@pytest.mark.parametrize("drop_path", [0.0, 0.4])
@pytest.mark.parametrize("parts", [2, 3])
def test_the_gradients_of_micro_batches_are_those_of_the_whole_batch(
    parts: int, drop_path: float
) -> None:
    tuned = tuner(without_batch_norm(small_segmenter(dropout=0)), drop_path=drop_path)
    whole = learned(tuned, batch(6), NOW)
    wanted = gradients(tuned.network)
    found = learned(tuned, batch(6), NOW, parts)
    assert wanted.keys() == gradients(tuned.network).keys()
    for name, gradient in gradients(tuned.network).items():
        torch.testing.assert_close(gradient, wanted[name], rtol=1e-4, atol=1e-6, msg=name)
    assert values(found) == pytest.approx(values(whole), rel=1e-5)
    assert found.mean_loss.item() == pytest.approx(whole.mean_loss.item(), rel=1e-5)


def test_dropout_and_drop_path_are_those_of_the_step_whatever_was_drawn_before() -> None:
    tuned = tuner(small_segmenter(dropout=0.5), drop_path=0.3)
    first = values(learned(tuned, batch(), NOW))
    torch.rand(7)
    state = torch.get_rng_state()
    assert values(learned(tuned, batch(), NOW)) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert values(learned(tuned, batch(), Now(4, 0, 1e-3))) != first


def test_another_step_draws_other_channels_and_another_part_too() -> None:
    tuned = tuner(small_segmenter(dropout=0.5))
    first = values(learned(tuned, batch(), NOW))
    assert values(learned(tuned, batch(), Now(4, 0, 1e-3))) != first
    images, labels = pictures(2).repeat(2, 1, 1, 1), some_labels(2).repeat(2, 1, 1)
    twice = SegmentBatch(images, labels, torch.arange(4), 0)
    halves = learned(tuned, twice, NOW, 2).losses
    assert halves[0]["decode"] != halves[1]["decode"]
    assert halves[0]["auxiliary"] == pytest.approx(halves[1]["auxiliary"].item(), rel=0.2)


def test_samples_of_boxes_are_those_of_the_step() -> None:
    truth = tuple(instances((4, 4, 40, 40), (20, 10, 60, 50)) for _ in range(2))
    images = torch.stack([drawn(each) for each in truth])
    shown = DetectBatch(images, truth, torch.arange(2), 0)
    network: Detector = small_detector().train()
    tuned = Tuner(network, drop_path=0.0, ema=None, seed=5)
    optimizer = build_optimizer(network, TunedOptimConfig())

    def losses(step: int) -> dict[str, float]:
        return values(compute_gradients(tuned, optimizer, shown, Now(step, 0, 1e-3), FP32))

    first = losses(3)
    torch.rand(7)
    assert losses(3) == first
    assert losses(4) != first


def test_the_report_has_the_means_of_all_losses_and_their_sum_first() -> None:
    parts = [
        {"decode": torch.tensor(1.0), "rpn_box": torch.tensor(0.5)},
        {"decode": torch.tensor(2.0), "rpn_box": torch.tensor(0.25)},
    ]
    found = DenseReport(parts, torch.tensor(1.875)).metrics()
    assert values_by_key(found) == {
        "loss.total": 1.875,
        "loss.decode": 1.5,
        "loss.rpn_box": 0.375,
    }
    assert [each.title for each in found] == ["loss", "decode loss", "rpn box loss"]


@pytest.mark.parametrize("bad", [None, torch.nan, torch.inf])
def test_a_step_that_is_not_finite_changes_nothing(bad: float | None) -> None:
    tuned = tuner(small_segmenter())
    network = tuned.network
    before = copy.deepcopy(network.state_dict())
    optimizer = build_optimizer(network, TunedOptimConfig())
    statistics, shown = Statistics(network), batch()
    if bad is not None:
        shown.images[1, 0, 5, 5] = bad
    report = compute_gradients(tuned, optimizer, shown, NOW, FP32)
    update = update_(tuned, optimizer, report, NOW, FP32, statistics, weight_decay=0.05)
    assert bool(update.finite) == (bad is None)
    after = network.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    if bad is None:
        assert any("running_mean" in name for name in changed)
        assert any(name.startswith("backbone.vit.blocks.0.") for name in changed)
    else:
        assert not changed
