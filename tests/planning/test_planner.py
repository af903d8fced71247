"""A plan holds together: its numbers follow from one another, and its answers are true."""

import json

import pytest

import attmask
from attmask.api import configure
from attmask.cli import main
from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.planning.planner import checkpoint_bytes, images_of_an_epoch
from attmask.planning.record import RunPlan
from attmask.planning.table import render
from attmask.train import Trainer


@pytest.fixture(scope="module")
def plan() -> RunPlan:
    return attmask.plan(
        "tiny",
        device="H100 80GB",
        processes=2,
        images=1_000,
        utilisation=0.5,
        core_images_per_second=100.0,
        overrides={"train.precision": "auto"},
    )


def test_time_follows_from_operations_and_rate_from_time(plan: RunPlan) -> None:
    assert plan.precision == "bf16"
    assert plan.step_seconds == pytest.approx(plan.step_operations / 2 / (0.5 * 989e12))
    assert plan.steps == 2 * (1_000 // 16)
    assert plan.hours == pytest.approx(plan.steps * plan.step_seconds / 3600)
    assert plan.images_per_second == pytest.approx(16 / plan.step_seconds)
    assert plan.cores - 1 < plan.images_per_second / 100 <= plan.cores


def test_a_run_that_fits_says_how_much_room_is_left(plan: RunPlan) -> None:
    assert plan.fits
    assert plan.answers == ()
    text = render(plan)
    assert "fits" in text
    assert "72.0 GB stay free" in text
    assert max(map(len, text.splitlines())) <= 80
    said = " ".join(text.split())
    assert [s for s in plan.assumptions if " ".join(s.split()) not in said] == []


def test_json_has_what_the_record_has(plan: RunPlan) -> None:
    written = json.loads(json.dumps(plan.to_dict()))
    assert written["peak_bytes"] == sum(written["memory"].values())
    assert written["device"]["name"] == "H100 80GB"
    assert written["fits"] is True


def test_what_does_not_fit_gets_settings_that_do() -> None:
    tight = attmask.plan(
        "tiny", device="small", memory_gb=0.0048, tflops=1.0, core_images_per_second=100.0
    )
    assert not tight.fits
    settings = {answer.setting.partition("=")[0].partition(" ")[0] for answer in tight.answers}
    assert settings == {"train.recompute", "train.accumulate", "--processes"}
    assert any(answer.fits for answer in tight.answers)
    assert all(answer.peak_bytes < tight.peak_bytes for answer in tight.answers)
    text = " ".join(render(tight).split())
    assert "does not fit" in text
    assert tight.answers[0].setting + " fits" in text


def test_the_checkpoint_is_as_large_as_training_says() -> None:
    config = configure("tiny")
    trainer = object.__new__(Trainer)
    from attmask.networks import build_distiller

    trainer.distiller = build_distiller(config)
    assert checkpoint_bytes(config) == trainer.checkpoint_bytes()


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


def test_a_device_without_bf16_trains_in_fp32_and_the_plan_says_so() -> None:
    old = attmask.plan(
        "tiny",
        device="V100 32GB",
        core_images_per_second=100.0,
        overrides=["train.precision=auto"],
    )
    assert old.precision == "fp32"
    assert any("train.precision=fp16 has 125 TFLOP/s" in said for said in old.assumptions)
    with pytest.raises(UserError, match="does not compute in bf16"):
        attmask.plan("tiny", device="V100 32GB", overrides=["train.precision=bf16"])
