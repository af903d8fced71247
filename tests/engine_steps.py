"""A few training steps of one process, or of this one among several; run as a script for those."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from attmask import distributed
from attmask.config import PretrainConfig
from attmask.data.views import Views
from attmask.engine import Sharding, attach_engine_
from attmask.hardware import Precision
from attmask.networks import build_distiller
from attmask.optim import build_optimizer
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.schedules import Schedules
from attmask.step import train_step

IMAGES = 8
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """What is trained, and by which engine."""

    name: str
    overrides: tuple[str, ...] = ()
    sharding: Sharding = "none"
    dtype: str = "float64"
    accumulate: int = 1
    compiled: bool = False
    steps: int = 3

    @property
    def config(self) -> PretrainConfig:
        """The settings, by default with drop path and a mask for every image."""
        given = ["backbone.drop_path=0.3", "masking.probability=1", *self.overrides]
        return override(load_recipe("tiny"), given)


@dataclass(frozen=True)
class Trained:
    """Student, teacher and centres; the masks of each step; each weight's smallest gradient."""

    state: dict[str, Tensor]
    masks: list[Tensor]
    smallest: dict[str, Tensor]


def noise(config: PretrainConfig, step: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Global and local crops of the whole batch."""
    chance = torch.Generator().manual_seed(step)
    views = config.views
    return (
        torch.randn(2, IMAGES, 3, 32, 32, generator=chance, dtype=torch.float64).to(dtype),
        torch.randn(views.local_crops, IMAGES, 3, 16, 16, generator=chance, dtype=torch.float64).to(
            dtype
        ),
    )


def train(case: Case) -> Trained:
    """Train on this process's share of every batch."""
    config, dtype = case.config, getattr(torch, case.dtype)
    torch._dynamo.reset()
    distiller = build_distiller(config).to(dtype)
    if case.compiled:
        distiller.student.backbone.compile_blocks(backend="aot_eager")
        distiller.teacher.backbone.compile_blocks(backend="aot_eager")
    attach_engine_(distiller, case.sharding, CPU)
    optimizer = build_optimizer(distiller.student, config.optim)
    schedules = Schedules(config.schedule, steps_per_epoch=2, batch_size=IMAGES)
    precision = Precision.choose("fp32", CPU)
    share = distributed.share_of(IMAGES)
    mine = slice(share.start, share.stop)
    masks, smallest = [], dict[str, Tensor]()
    for step in range(case.steps):
        whole, local = noise(config, step, dtype)
        views, now = Views(whole[:, mine], local[:, mine], share.start), schedules.at(step)
        masks.append(distiller.targets(views, now).mask.hidden.unflatten(0, (2, -1)))
        train_step(
            distiller,
            optimizer,
            views,
            now,
            precision,
            accumulate=case.accumulate,
            clip=config.optim.clip,
        )
        for name, parameter in distiller.student.named_parameters():
            if parameter.grad is not None:
                size = _whole(parameter.grad).abs()
                smallest[name] = torch.minimum(smallest.get(name, size), size)
    state = {name: _whole(tensor) for name, tensor in distiller.state_dict().items()}
    return Trained(state, masks, smallest)


def _whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if distributed.is_sharded(tensor) else tensor.detach().clone()


def main(cases: Path, folder: Path) -> None:
    """Train every case; the main process keeps the state, each process its masks."""
    with distributed.processes(CPU):
        for values in json.loads(cases.read_text()):
            case = Case(**{**values, "overrides": tuple(values["overrides"])})
            made = train(case)
            torch.save(made.masks, folder / f"{case.name}.masks{distributed.rank()}.pt")
            if distributed.is_main():
                torch.save(made.state, folder / f"{case.name}.state.pt")


def write_cases(cases: list[Case], path: Path) -> None:
    """For `main` in other processes."""
    path.write_text(json.dumps([asdict(case) for case in cases]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
