"""The learning rates of fine-tuning, against tables computed by hand and timm's scheduler."""

import pytest
import torch
from timm.scheduler import CosineLRScheduler

from attmask.finetuning.schedules import EpochCosine, FinetuneSchedules
from tests.finetuning.networks import recipe

PEAK = 1.318359375e-05  # 7.5e-6 × 900 / 512


def schedules(name: str, steps_per_epoch: int, *overrides: str) -> FinetuneSchedules:
    config = recipe(name, *overrides)
    return FinetuneSchedules(
        config.schedule, steps_per_epoch=steps_per_epoch, batch_size=config.train.batch_size
    )


def test_cifar_rises_for_five_epochs_and_hardly_falls() -> None:
    found = schedules("cifar10", 55)
    by_hand = {
        0: 1e-6,
        1: 3.43671875e-06,
        4: 1.0746875e-05,
        5: 1.318280815e-05,
        250: 1.1591796875e-05,
        499: 1.0000031e-05,
    }
    for epoch, lr in by_hand.items():
        assert found.at(55 * epoch).lr == pytest.approx(lr, rel=1e-6), epoch
        assert found.at(55 * epoch + 54).lr == found.at(55 * epoch).lr
    assert found.steps == 500 * 55


def test_the_rates_by_epoch_are_those_of_timms_scheduler() -> None:
    ours = EpochCosine(PEAK, 1e-5, 500, 5.0, 1e-6)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    theirs = CosineLRScheduler(optimizer, 500, lr_min=1e-5, warmup_t=5, warmup_lr_init=1e-6)
    for epoch in (0, 1, 3, 4, 5, 6, 100, 499):
        theirs.step(epoch)
        assert ours(epoch) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)


def test_imagenet_rises_from_zero_step_by_step_and_falls_to_its_end() -> None:
    found = schedules("imagenet", 1251)
    warmup = 20 * 1251
    assert found.at(0).lr == 0.0
    assert found.at(warmup - 1).lr == pytest.approx(4e-3)
    assert found.at(warmup).lr == pytest.approx(4e-3)
    assert found.at((warmup + found.steps) // 2).lr == pytest.approx((4e-3 + 1e-6) / 2, rel=1e-4)
    assert found.at(found.steps - 1).lr == pytest.approx(1e-6, rel=1e-2)


def test_own_trains_the_classifier_first_and_then_warms_up() -> None:
    found = schedules("own", 10)
    peak = 2e-3 * 64 / 256
    assert all(found.at(step).backbone_frozen == (step < 20) for step in range(40))
    assert found.at(0).lr == found.at(19).lr == pytest.approx(10 * peak)
    assert found.at(20).lr == 0.0
    assert found.at(39).lr == pytest.approx(peak)


def test_flowers_has_one_step_an_epoch() -> None:
    found = schedules("flowers", 1)
    assert found.steps == 1000
    assert found.at(2).lr == pytest.approx(1e-6 + 2 * (PEAK - 1e-6) / 5)
