"""What PyTorch makes of a network: export, and a device that is never waited for."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._python_dispatch import TorchDispatchMode

from attmask.config import PretrainConfig
from attmask.data.views import Views
from attmask.hardware import Precision
from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules
from attmask.step import train_step


def test_the_backbone_can_be_exported() -> None:
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=24, depth=2, heads=3)
    backbone = build_backbone(config, image_size=32, channels=3).eval()
    images = torch.randn(2, 3, 32, 32)
    exported = torch.export.export(backbone, (images,)).module()
    with torch.no_grad():
        for ours, theirs in zip(exported(images), backbone(images), strict=True):
            torch.testing.assert_close(ours, theirs)


aten = torch.ops.aten


class NoWaiting(TorchDispatchMode):
    """Refuses what makes the host wait for a device."""

    WAITING = (
        aten._local_scalar_dense.default,
        aten.nonzero.default,
        aten.masked_select.default,
        aten.equal.default,
        aten.is_nonzero.default,
    )

    def __init__(self) -> None:
        untyped: Any = super().__init__
        untyped()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        on_device = any(isinstance(a, Tensor) and a.device.type != "cpu" for a in args)
        assert not (on_device and func in self.WAITING), f"{func} waits for the device"
        if on_device and func is aten.index.Tensor:
            kinds = {index.dtype for index in args[1] if index is not None}
            assert torch.bool not in kinds, "an index of booleans waits for the device"
        out = func(*args, **(kwargs or {}))
        assert not (on_device and isinstance(out, Tensor) and out.device.type == "cpu"), func
        return out


@dataclass(frozen=True)
class WithoutBackward(Precision):
    """Gradients of any value: the engine of gradients wants a real GPU, all else does not."""

    student: nn.Module | None = None

    def backward(self, loss: Tensor) -> None:
        assert self.student is not None
        for parameter in self.student.parameters():
            parameter.grad = torch.empty_like(parameter)


def make_fake_(module: nn.Module, mode: FakeTensorMode, device: torch.device) -> None:
    """Parameters and buffers that have a shape and a device, and no values."""
    for part in module.modules():
        for name, parameter in part.named_parameters(recurse=False):
            fake = mode.from_tensor(parameter.detach()).to(device)
            setattr(part, name, nn.Parameter(fake, parameter.requires_grad))
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, mode.from_tensor(buffer).to(device))


METHODS = pytest.mark.parametrize("method", ["ibot", "dino"])
STRATEGIES = pytest.mark.parametrize("strategy", ["high", "low", "hint", "random", "block"])
CENTRINGS = pytest.mark.parametrize("centring", ["mean", "sinkhorn"])


def config_of(method: str, strategy: str, centring: str) -> PretrainConfig:
    return override(
        load_recipe("tiny"),
        [
            f"masking.strategy={strategy}",
            f"loss.patch_weight={int(method == 'ibot')}",
            f"loss.centring={centring}",
            "backbone.drop_path=0.3",
        ],
    )


def empty_views(device: torch.device) -> Views:
    return Views(
        torch.empty(2, 8, 3, 32, 32, device=device), torch.empty(2, 8, 3, 16, 16, device=device)
    )


@METHODS
@STRATEGIES
@CENTRINGS
def test_a_step_on_a_gpu_never_waits_for_it_nor_mixes_devices(
    method: str, strategy: str, centring: str
) -> None:
    config, cuda = config_of(method, strategy, centring), torch.device("cuda")
    distiller = build_distiller(config)
    now = Schedules(config.schedule, steps_per_epoch=2, batch_size=8).at(2)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        make_fake_(distiller, mode, cuda)
        optimizer = build_optimizer(distiller.student, config.optim)
        made = Precision.choose("fp32", cuda)
        precision = WithoutBackward(made.format, cuda, made.scaler, distiller.student)
        with NoWaiting():
            for _ in range(2):  # the second with moments
                report = train_step(
                    distiller,
                    optimizer,
                    empty_views(cuda),
                    now,
                    precision,
                    clip=3.0,
                    observe=True,
                )
    assert report.losses[0].total.device.type == "cuda"


@METHODS
@STRATEGIES
@CENTRINGS
def test_a_step_with_its_backward_pass_reads_no_value(
    method: str, strategy: str, centring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tensors of a CPU that have no values: whatever reads one raises an error."""
    # Broken attention is looked for on a CPU alone, where it costs no waiting.
    monkeypatch.setattr("attmask.masking._refuse_broken", lambda attention: None)
    config, cpu = config_of(method, strategy, centring), torch.device("cpu")
    distiller = build_distiller(config)
    now = Schedules(config.schedule, steps_per_epoch=2, batch_size=8).at(2)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        make_fake_(distiller, mode, cpu)
        optimizer = build_optimizer(distiller.student, config.optim)
        precision = Precision.choose("fp32", cpu)
        for _ in range(2):
            report = train_step(
                distiller, optimizer, empty_views(cpu), now, precision, clip=3.0, observe=True
            )
        with pytest.raises(DataDependentOutputException):
            report.losses[0].total.item()
