"""Devices are found by name, or stated."""

import pytest

from attmask.errors import UserError
from attmask.planning.devices import DEVICES, Device, find_device, names


def test_names_are_found_in_any_case_and_spacing() -> None:
    assert find_device("h100 80gb", processes=8) == find_device("H100 80GB", processes=1)
    assert find_device("rtx4090 24GB", processes=1).memory_gb == 24


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("H100", "did you mean H100 80GB or H100 PCIe 80GB?"),
        ("A100 60GB", "did you mean A100 80GB or A100 40GB"),
        ("Cray", "`attmask plan --help` lists them"),
    ],
)
def test_an_unknown_name_gets_advice(name: str, advice: str) -> None:
    with pytest.raises(UserError) as caught:
        find_device(name, processes=1)
    assert advice in str(caught.value)
    assert "--memory and --tflops" in str(caught.value)


def test_memory_and_speed_can_be_stated_of_any_device() -> None:
    own = find_device("mine", processes=1, memory_gb=12.0, tflops=50.0)
    assert (own.memory_gb, own.tflops("bf16"), own.source) == (12, 50, "as stated")
    known = find_device("V100 32GB", processes=1, tflops=100.0)
    assert (known.memory_gb, known.tflops("fp16"), known.bf16) == (32, 100, None)


def test_a_format_that_a_device_lacks_is_refused() -> None:
    with pytest.raises(UserError, match=r"V100 16GB does not compute in bf16; use .*fp16 or fp32"):
        find_device("V100 16GB", processes=1).tflops("bf16")


def test_processes_on_a_cpu_share_it() -> None:
    one, two = (find_device("cpu", processes=n) for n in (1, 2))
    assert two.memory_gb == pytest.approx(one.memory_gb / 2)
    assert one.tflops("fp32") > 0
    assert one.is_cpu


@pytest.mark.parametrize("device", DEVICES, ids=lambda device: device.name)
def test_every_device_has_its_memory_in_its_name_and_a_source(device: Device) -> None:
    assert device.name.endswith(f"{device.memory_gb:g}GB")
    assert "NVIDIA" in device.source or "AMD" in device.source
    assert device.fp32 is not None
    assert device.fp16 is not None
    assert device.fp16 > device.fp32


def test_the_help_names_every_device() -> None:
    from attmask.cli import build_parser

    text = " ".join(_help_of_plan(build_parser()).split())
    assert [name for name in names() if name not in text] == []


def _help_of_plan(parser: object) -> str:
    from argparse import ArgumentParser

    assert isinstance(parser, ArgumentParser)
    actions = [action for action in parser._actions if action.dest == "command"]
    choices = actions[0].choices
    assert isinstance(choices, dict)
    return str(choices["plan"].format_help())
