import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from attmask.schedules import Cosine, Ramp, ScheduleConfig, Schedules, changes_at
from tests.reference import arrays

# The sizes of tests/golden/schedules.npz.
CONFIG = ScheduleConfig(
    epochs=20,
    lr_warmup_epochs=3,
    cls_temperature_warmup_epochs=6,
    patch_temperature_warmup_epochs=6,
)
GOLDEN = Schedules(CONFIG, steps_per_epoch=7, batch_size=240)


@pytest.mark.parametrize("name", ["lr", "weight_decay", "momentum"])
def test_every_step_equals_the_reference(name: str) -> None:
    ours = [getattr(GOLDEN.at(step), name) for step in range(GOLDEN.steps)]
    np.testing.assert_allclose(ours, arrays("schedules")[name], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["cls_temperature", "patch_temperature"])
def test_every_temperature_equals_the_reference(name: str) -> None:
    ours = [getattr(GOLDEN.at(7 * epoch), name) for epoch in range(20)]
    theirs = arrays("schedules")["teacher_temperature"]
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


def test_the_golden_run_is_described_by_the_papers_settings() -> None:
    golden = arrays("schedules")
    assert golden["lr_args"].tolist() == [CONFIG.lr * 240 / 256, CONFIG.lr_final, 20, 7, 3]
    assert golden["weight_decay_args"].tolist()[:2] == [
        CONFIG.weight_decay,
        CONFIG.weight_decay_final,
    ]
    assert golden["momentum_args"].tolist()[:2] == [CONFIG.momentum, CONFIG.momentum_final]
    assert golden["teacher_temperature_args"].tolist() == [*CONFIG.cls_temperature, 6, 20]


@given(
    start=st.floats(1e-6, 1),
    final=st.floats(0, 1),
    warmup=st.integers(0, 30),
    after=st.integers(1, 60),
)
def test_a_cosine_is_a_linspace_and_then_half_a_cosine(
    start: float, final: float, warmup: int, after: int
) -> None:
    rising = np.linspace(0, start, warmup)
    falling = final + 0.5 * (start - final) * (1 + np.cos(np.pi * np.arange(after) / after))
    curve = Cosine(start, final, warmup + after, warmup)
    ours = [curve(step) for step in range(warmup + after)]
    np.testing.assert_allclose(ours, np.concatenate([rising, falling]), rtol=0, atol=1e-12)


@given(start=st.floats(0.01, 1), end=st.floats(0.01, 1), warmup=st.integers(0, 20))
def test_a_ramp_is_a_linspace_and_then_constant(start: float, end: float, warmup: int) -> None:
    ramp = Ramp(start, end, warmup)
    plain = np.concatenate([np.linspace(start, end, warmup), np.full(10, end)])
    if warmup == 1:
        assert ramp(0) == start
    np.testing.assert_allclose([ramp(e) for e in range(warmup + 10)], plain, rtol=0, atol=1e-12)


def test_the_warm_up_begins_at_zero_and_holds_the_peak_for_two_steps() -> None:
    peak = 5e-4 * 240 / 256
    assert GOLDEN.at(0).lr == 0
    assert GOLDEN.at(20).lr == peak  # the last step of the warm-up
    assert GOLDEN.at(21).lr == peak  # the first of the cosine
    assert GOLDEN.at(22).lr < peak


def test_the_learning_rate_grows_with_the_batch_and_its_end_does_not() -> None:
    double = Schedules(CONFIG, steps_per_epoch=7, batch_size=480)
    assert double.at(21).lr == 2 * GOLDEN.at(21).lr
    assert double.at(140).lr == pytest.approx(1e-6, abs=1e-15)
    assert GOLDEN.at(140).lr == pytest.approx(1e-6, abs=1e-15)


def test_cls_and_patch_temperatures_have_schedules_of_their_own() -> None:
    config = ScheduleConfig(
        epochs=8,
        lr_warmup_epochs=0,
        cls_temperature=(0.02, 0.06),
        cls_temperature_warmup_epochs=3,
        patch_temperature=(0.05, 0.05),
        patch_temperature_warmup_epochs=0,
    )
    schedules = Schedules(config, steps_per_epoch=2, batch_size=8)
    cls = [schedules.at(step).cls_temperature for step in range(8)]
    assert cls == pytest.approx([0.02, 0.02, 0.04, 0.04, 0.06, 0.06, 0.06, 0.06])
    assert {schedules.at(step).patch_temperature for step in range(16)} == {0.05}


@pytest.mark.parametrize(("epochs", "frozen"), [(0, 0), (1, 5), (2, 10)])
def test_the_last_layer_is_frozen_for_whole_epochs(epochs: int, frozen: int) -> None:
    config = ScheduleConfig(freeze_last_layer_epochs=epochs)
    schedules = Schedules(config, steps_per_epoch=5, batch_size=8)
    assert [schedules.at(step).last_layer_frozen for step in range(15)] == [
        step < frozen for step in range(15)
    ]


def test_steps_and_epochs_count_from_zero() -> None:
    assert GOLDEN.steps == 140
    assert [(GOLDEN.at(s).step, GOLDEN.at(s).epoch) for s in (0, 6, 7, 139)] == [
        (0, 0),
        (6, 0),
        (7, 1),
        (139, 19),
    ]


def test_a_warm_up_may_last_the_whole_training_and_part_of_an_epoch() -> None:
    config = ScheduleConfig(epochs=2, lr_warmup_epochs=2)
    whole = Schedules(config, steps_per_epoch=3, batch_size=256)
    assert [whole.at(step).lr for step in range(6)] == pytest.approx(np.linspace(0, 5e-4, 6))
    config = ScheduleConfig(epochs=2, lr_warmup_epochs=0.5)
    half = Schedules(config, steps_per_epoch=10, batch_size=256)
    assert [half.at(step).lr for step in range(5)] == pytest.approx(np.linspace(0, 5e-4, 5))
    assert half.at(5).lr == 5e-4


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"lr": 0},
        {"lr_warmup_epochs": -1},
        {"momentum": 1.1},
        {"weight_decay": -0.1},
        {"cls_temperature": (0.0, 0.07)},
        {"patch_temperature": (0.04, -0.07)},
    ],
)
def test_impossible_schedules_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        ScheduleConfig.model_validate(wrong)


def test_what_the_log_holds_are_the_knobs_of_the_step() -> None:
    now = GOLDEN.at(50)
    assert {metric.key: metric.value for metric in now.metrics()} == {
        "schedule.lr": now.lr,
        "schedule.weight_decay": now.weight_decay,
        "schedule.momentum": now.momentum,
        "schedule.cls_temperature": now.cls_temperature,
        "schedule.patch_temperature": now.patch_temperature,
    }


def test_a_longer_training_changes_what_depends_on_its_length() -> None:
    longer = Schedules(CONFIG.model_copy(update={"epochs": 40}), steps_per_epoch=7, batch_size=240)
    assert changes_at(70, GOLDEN, GOLDEN) == ""
    changed = changes_at(70, GOLDEN, longer)
    old, new = GOLDEN.at(70), longer.at(70)
    assert f"learning rate {old.lr:.4g} -> {new.lr:.4g}" in changed
    assert "teacher momentum" in changed
    assert "temperature" not in changed
