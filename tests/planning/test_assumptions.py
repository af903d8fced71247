"""What a plan assumes is said where it applies, and nowhere else."""

from attmask.api import configure
from attmask.hardware import choose_format
from attmask.planning.assumptions import of_device, of_rate, of_step
from attmask.planning.devices import find_device

PAPER = configure("ibot-high")


def test_a_device_without_bf16_trains_in_fp32_and_the_plan_says_so() -> None:
    old, new = (find_device(name, processes=1) for name in ("V100 32GB", "A100 40GB"))
    assert choose_format(PAPER.train.precision, bf16=old.bf16 is not None) == "fp32"
    said = "V100 32GB has no bf16, so train.precision=auto trains in fp32"
    assert any(said in each for each in of_device(PAPER, old, "fp32"))
    assert not any("no bf16" in each for each in of_device(PAPER, new, "bf16"))


def test_a_device_comes_with_its_source() -> None:
    first = next(iter(of_device(PAPER, find_device("L4 24GB", processes=1), "bf16")))
    assert first == "L4 24GB: 24 GB (10^9 bytes), 121 TFLOP/s in bf16 (NVIDIA L4 data sheet)"


def test_the_step_says_what_is_and_what_is_not_counted() -> None:
    plain = " ".join(of_step(PAPER, 1, 0.2))
    assert "DDP" not in plain
    assert "50 % of the patches" in plain
    assert "20 % of the peak speed" in plain
    other = configure(
        "dino", ["train.compile=true", "views.colours_on=device", "backbone.drop_path=0"]
    )
    said = " ".join(of_step(other, 8, 0.2))
    assert "DDP" in said
    assert "train.compile is not counted" in said
    assert "views.colours_on=device is not counted" in said
    assert "patches" not in said
    assert "drop path" not in said


def test_the_step_says_what_each_process_holds() -> None:
    sharded = configure("ibot-high", ["train.sharding=fsdp"])
    said = " ".join(of_step(sharded, 8, 0.2))
    assert "each of the 8 processes holds its part of weights and moments (FSDP2)" in said
    assert "sending gradients and weights" in said
    assert "DDP" not in said
    assert "one process has nobody to share with" in " ".join(of_step(sharded, 1, 0.2))
    assert "holds all weights, gradients and moments" in " ".join(of_step(PAPER, 8, 0.2))


def test_the_rate_of_a_core_is_measured_or_stated() -> None:
    assert "measured on one core of this machine, 8 views" in of_rate(PAPER, is_measured=True)
    assert "as stated, 8 views" in of_rate(PAPER, is_measured=False)
