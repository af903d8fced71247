"""What a bug report should say about the machine and what is installed on it."""

import importlib.metadata
import os
import platform
import re
from pathlib import Path

import torch

from attmask.audit.memory import total_bytes
from attmask.columns import Row
from attmask.hardware import choose_device, choose_format, cores, has_bf16
from attmask.software import software
from attmask.wording import counted

_SHOWN_VARIABLES = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE", "SLURM_NTASKS")


def environment() -> list[Row]:
    """Versions of everything installed, and what the machine computes with."""
    versions = {**software(), "torch": _torch()}
    versions.pop("attmask", None)  # as it was installed; a checkout may be newer
    device, memory = choose_device("auto"), total_bytes()
    return [
        *versions.items(),
        *((name, version) for name, version in _optional() if name not in versions),
        ("system", platform.platform()),
        ("processor", f"{_processor()}, {counted(cores(), 'core')} of {os.cpu_count()} usable"),
        ("instructions", str(torch.backends.cpu.get_cpu_capability())),
        ("memory", "unknown" if memory is None else f"{memory / 1e9:.0f} GB"),
        *_accelerators(),
        ("device auto", str(device)),
        ("precision auto", choose_format("auto", bf16=has_bf16(device))),
        *((name, os.environ[name]) for name in _SHOWN_VARIABLES if name in os.environ),
    ]


def _torch() -> str:
    """PyTorch's version and what it was built for."""
    cuda, rocm = torch.version.cuda, torch.version.hip
    built = f"CUDA {cuda}" if cuda else f"ROCm {rocm}" if rocm else "CPU"
    return f"{torch.__version__}, built for {built}"


def _optional() -> list[Row]:
    """The packages of the extras that are installed."""
    try:
        wanted = importlib.metadata.requires("attmask") or []
    except importlib.metadata.PackageNotFoundError:  # the source alone, on the path
        return []
    found: dict[str, str] = {}
    for requirement in wanted:
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return sorted(found.items(), key=lambda item: item[0].lower())


def _processor() -> str:
    """The name of the processor, as the system has it."""
    known = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.+)$", known.read_text(), re.M) if known.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def _accelerators() -> list[Row]:
    """Each accelerator with its memory."""
    if not torch.accelerator.is_available():
        return [("accelerator", "none")]
    kind = torch.accelerator.current_accelerator()
    rows = []
    for index in range(torch.accelerator.device_count()):
        name = str(kind)
        if torch.cuda.is_available():
            about = torch.cuda.get_device_properties(index)
            capability = f"{about.major}.{about.minor}"
            name = f"{about.name}, {about.total_memory / 1e9:.0f} GB, capability {capability}"
        rows.append((f"accelerator {index}", name))
    return rows
