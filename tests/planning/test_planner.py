"""A plan holds together: its numbers follow from one another, and its answers are true."""

import json

import pytest

import attmask
from attmask.cli import main
from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.planning.group import group_of
from attmask.planning.planner import images_of_an_epoch
from attmask.planning.record import RunPlan


def test_time_follows_from_operations_and_rate_from_time(plan: RunPlan) -> None:
    assert plan.precision == "bf16"
    assert plan.step_seconds == pytest.approx(plan.step_operations / 2 / (0.5 * 989e12))
    assert plan.steps == 2 * (1_000 // 16)
    assert plan.hours == pytest.approx(plan.steps * plan.step_seconds / 3600)
    assert plan.images_per_second == pytest.approx(16 / plan.step_seconds)
    assert plan.cores - 1 < plan.images_per_second / 100 <= plan.cores


def test_a_plan_that_fits_has_no_answers(plan: RunPlan) -> None:
    assert plan.fits
    assert plan.answers == ()


def test_the_command_prints_the_plan_of_the_function_as_json(
    plan: RunPlan, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--recipe tiny --processes 2 --images 1000 --utilisation 0.5 --core-rate 100 --json"
    assert main(["plan", "--device", "H100 80GB", *words.split(), "train.precision=auto"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(json.dumps(plan.to_dict()))
    assert printed["peak_bytes"] == sum(printed["memory"].values())
    assert printed["fits"] is True


@pytest.mark.parametrize(
    ("data", "given", "wanted"),
    [
        (DataConfig(), None, 1_281_167),
        (DataConfig(percent=20), None, 256_233),
        (DataConfig(per_class=260), None, 260_000),
        (DataConfig(), 5_000, 5_000),
        (DataConfig(percent=10), 5_000, 500),
        (DataConfig(per_class=260), 5_000, 5_000),
    ],
)
def test_an_epoch_has_the_images_that_the_data_settings_leave(
    data: DataConfig, given: int | None, wanted: int
) -> None:
    images, said = images_of_an_epoch(data, given)
    assert images == wanted
    assert ("ImageNet-1k" in said) == (given is None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "7"), "cannot be shared by 7 processes; use 14 or 21"),
        (("--processes", "4", "train.accumulate=16"), "4 images a process do not split"),
        (("--utilisation", "1.5"), "--utilisation 1.5: wanted a share"),
        (("--images", "10", "--core-rate", "1"), "10 images are fewer than one batch of 16"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--recipe", "tiny", "--device", "L4 24GB", *words]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_plan_inside_a_process_group_is_refused() -> None:
    with group_of(2), pytest.raises(UserError, match="outside of a process group"):
        attmask.plan("tiny", device="L4 24GB", core_images_per_second=1.0)


def test_a_format_that_the_device_lacks_is_refused() -> None:
    with pytest.raises(UserError, match="does not compute in bf16"):
        attmask.plan("tiny", device="V100 32GB", overrides=["train.precision=bf16"])


@pytest.mark.parametrize("spared", ["adapt.lora_rank=2", "adapt.blocks=1"])
def test_what_is_frozen_has_no_gradients_and_no_moments(spared: str) -> None:
    small = ["backbone.width=48", "backbone.depth=2", "backbone.heads=3", "train.batch_size=4"]

    def planned(*overrides: str) -> RunPlan:
        return attmask.plan(
            "adapt",
            device="H100 80GB",
            processes=2,
            images=1_000,
            core_images_per_second=100.0,
            overrides=[*small, *overrides],
        )

    whole, part = planned(), planned(spared)
    assert part.memory.gradients < whole.memory.gradients
    assert part.memory.moments == pytest.approx(2 * part.memory.gradients, rel=0.01)
    assert part.checkpoint_bytes < whole.checkpoint_bytes
