"""The learning rates of dense prediction, computed by hand."""

import pytest

from attmask.dense.config import DenseScheduleConfig
from attmask.dense.schedules import DenseSchedules


def schedules(steps_per_epoch: int, batch_size: int = 16, **settings: object) -> DenseSchedules:
    config = DenseScheduleConfig(**settings)  # type: ignore[arg-type]
    return DenseSchedules(config, steps_per_epoch=steps_per_epoch, batch_size=batch_size)


def test_the_rate_of_ade20k_rises_below_a_line_that_falls_to_zero() -> None:
    found = schedules(
        1263,
        epochs=127,
        steps=160_000,
        lr=7e-4,
        lr_warmup_steps=1500,
        lr_warmup_factor=1e-6,
        lr_falls="linear",
    )
    assert found.steps == 160_000
    assert found.at(0).lr == pytest.approx(7e-4 * 1e-6)
    # Half of the warm-up: 1 - 0.5 × (1 - 1e-6) of what the line has there.
    assert found.at(750).lr == pytest.approx(7e-4 * (1 - 750 / 160_000) * 0.5000005)
    assert found.at(1499).lr == pytest.approx(
        7e-4 * (1 - 1499 / 160_000) * (1 - 1 / 1500 * (1 - 1e-6))
    )
    assert found.at(1500).lr == pytest.approx(7e-4 * (1 - 1500 / 160_000))
    assert found.at(80_000).lr == pytest.approx(3.5e-4)
    assert found.at(159_999).lr == pytest.approx(7e-4 / 160_000)
    assert found.at(160_000).lr == 0.0


def test_the_rate_of_coco_falls_to_a_tenth_at_two_epochs() -> None:
    found = schedules(7330)
    by_hand = {500: 1e-4, 9 * 7330 - 1: 1e-4, 9 * 7330: 1e-5, 11 * 7330 - 1: 1e-5, 11 * 7330: 1e-6}
    for step, lr in by_hand.items():
        assert found.at(step).lr == pytest.approx(lr), step
    assert found.at(0).lr == pytest.approx(1e-7)
    assert found.at(250).lr == pytest.approx(1e-4 * 0.5005)
    assert found.steps == 12 * 7330


def test_a_warm_up_that_lasts_beyond_a_fall_is_a_factor_of_the_lower_rate() -> None:
    found = schedules(10, epochs=3, lr=1.0, lr_drop_epochs=(1,), lr_warmup_steps=20)
    assert found.at(9).lr == pytest.approx(1 - 11 / 20 * 0.999)
    assert found.at(10).lr == pytest.approx(0.1 * (1 - 10 / 20 * 0.999))


def test_without_a_warm_up_the_first_step_has_the_whole_rate() -> None:
    assert schedules(10, lr=0.3, lr_warmup_steps=0).at(0).lr == pytest.approx(0.3)


def test_a_length_in_steps_may_end_inside_an_epoch() -> None:
    found = schedules(4, epochs=2, steps=7, lr=7.0, lr_warmup_steps=0, lr_falls="linear")
    assert found.steps == 7
    assert [found.at(step).lr for step in range(7)] == pytest.approx([7, 6, 5, 4, 3, 2, 1])
    assert [found.at(step).epoch for step in range(7)] == [0, 0, 0, 0, 1, 1, 1]


def test_the_rate_is_scaled_by_the_batch_if_that_is_asked_for() -> None:
    settings = {"lr": 1e-4, "lr_warmup_steps": 0}
    assert schedules(4, 8, lr_batch=16, **settings).at(0).lr == pytest.approx(5e-5)
    assert schedules(4, 8, **settings).at(0).lr == pytest.approx(1e-4)
