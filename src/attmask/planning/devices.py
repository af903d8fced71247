"""Devices by name: their memory and their peak speed, from the vendors' data sheets.

Speeds are TFLOP/s of dense matrix products, without sparsity; bf16 and fp16 add up in fp32. fp32
is that of plain fp32 units, because PyTorch does not use TF32 unless it is told to. A GB is 10^9
bytes, which is somewhat less than most devices have.
"""

import time
from dataclasses import dataclass, replace

import torch

from attmask.audit.memory import total_bytes
from attmask.errors import UserError
from attmask.hardware import Format, has_bf16
from attmask.overrides import unknown
from attmask.wording import counted

CPU = "cpu"
_SIDE = 1024
_SECONDS = 0.3


@dataclass(frozen=True)
class Device:
    """What one process trains on."""

    name: str
    memory_gb: float
    bf16: float | None
    """TFLOP/s; None if the device does not compute in this format."""
    fp16: float | None
    fp32: float | None
    source: str

    @property
    def is_cpu(self) -> bool:
        """Whether it is the processor of this machine."""
        return self.name == CPU

    def tflops(self, precision: Format) -> float:
        """The peak speed in a number format."""
        speeds = {"bf16": self.bf16, "fp16": self.fp16, "fp32": self.fp32}
        speed = speeds[precision]
        if speed is None:
            others = [name for name, known in speeds.items() if known is not None]
            raise UserError(
                f"{self.name} does not compute in {precision}; use train.precision="
                f"{' or '.join(others)}"
            )
        return speed


def _tensor_cores(name: str, gigabytes: float, half: float, fp32: float, source: str) -> Device:
    """A device that is as fast in bf16 as in fp16."""
    return Device(name, gigabytes, half, half, fp32, source)


DEVICES: tuple[Device, ...] = (
    _tensor_cores("H200 141GB", 141.0, 989.0, 67.0, "NVIDIA H200 data sheet, SXM"),
    _tensor_cores("H100 80GB", 80.0, 989.0, 67.0, "NVIDIA H100 data sheet, SXM"),
    _tensor_cores("H100 PCIe 80GB", 80.0, 756.0, 51.0, "NVIDIA H100 data sheet, PCIe"),
    _tensor_cores("A100 80GB", 80.0, 312.0, 19.5, "NVIDIA A100 data sheet"),
    _tensor_cores("A100 40GB", 40.0, 312.0, 19.5, "NVIDIA A100 data sheet"),
    _tensor_cores("A10 24GB", 24.0, 125.0, 31.2, "NVIDIA A10 data sheet"),
    _tensor_cores("L40S 48GB", 48.0, 362.0, 91.6, "NVIDIA L40S data sheet"),
    _tensor_cores("L4 24GB", 24.0, 121.0, 30.3, "NVIDIA L4 data sheet"),
    _tensor_cores("RTX 4090 24GB", 24.0, 165.2, 82.6, "NVIDIA Ada architecture whitepaper"),
    _tensor_cores("RTX 3090 24GB", 24.0, 71.0, 35.6, "NVIDIA GA102 architecture whitepaper"),
    _tensor_cores("MI300X 192GB", 192.0, 1307.4, 163.4, "AMD Instinct MI300X data sheet"),
    Device("V100 32GB", 32.0, None, 125.0, 15.7, "NVIDIA V100 data sheet, SXM2"),
    Device("V100 16GB", 16.0, None, 125.0, 15.7, "NVIDIA V100 data sheet, SXM2"),
    Device("T4 16GB", 16.0, None, 65.0, 8.1, "NVIDIA T4 data sheet"),
)


def names() -> list[str]:
    """The names of all devices."""
    return [*(device.name for device in DEVICES), CPU]


def find_device(
    name: str,
    *,
    processes: int,
    memory_gb: float | None = None,
    tflops: float | None = None,
) -> Device:
    """A device by its name; memory and speed may be stated, also of one that has no name here.

    The processes of a CPU share its memory and its speed.
    """
    named = {_compact(device.name): device for device in DEVICES}
    found = named.get(_compact(name))
    if _compact(name) == CPU:
        found = _this_machine(processes, memory_gb, measure=tflops is None)
    if found is None:
        if memory_gb is None or tflops is None:
            raise UserError(f"{_unknown(name)}; or state --memory and --tflops")
        return Device(name, memory_gb, tflops, tflops, tflops, "as stated")
    if memory_gb is not None:
        found = replace(found, memory_gb=memory_gb, source=f"{found.source}; memory as stated")
    if tflops is not None:
        bf16, fp16, fp32 = (
            None if known is None else tflops for known in (found.bf16, found.fp16, found.fp32)
        )
        said = f"{found.source}; TFLOP/s as stated"
        found = replace(found, bf16=bf16, fp16=fp16, fp32=fp32, source=said)
    return found


def _compact(name: str) -> str:
    return "".join(name.lower().split())


def _unknown(name: str) -> str:
    near = [known for known in names() if _compact(known).startswith(_compact(name))]
    if near and name.strip():
        return f"there is no device {name!r}; did you mean {' or '.join(near[:3])}?"
    return unknown("device", name, names())


def _this_machine(processes: int, memory_gb: float | None, *, measure: bool) -> Device:
    """The CPU: its memory, and the speed of a product of matrices with PyTorch's threads."""
    if memory_gb is None:
        memory = total_bytes()
        if memory is None:
            raise UserError("this system does not report its memory; state --memory, in GB")
        memory_gb = memory / processes / 1e9
    own = ["fp32", "bf16"] if has_bf16(torch.device(CPU)) else ["fp32"]
    speeds = {name: (_measured(name) if measure else 0.0) / processes for name in own}
    threads = counted(torch.get_num_threads(), "thread")
    how = f"this machine, a product of {_SIDE} x {_SIDE} matrices by {threads}"
    return Device(CPU, memory_gb, speeds.get("bf16"), None, speeds["fp32"], how)


def _measured(precision: str) -> float:
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[precision]
    matrix = torch.ones(_SIDE, _SIDE, dtype=dtype)
    matrix @ matrix  # the first one chooses a kernel
    began, products = time.perf_counter(), 0
    while time.perf_counter() - began < _SECONDS:
        matrix @ matrix
        products += 1
    return products * 2 * _SIDE**3 / (time.perf_counter() - began) / 1e12
