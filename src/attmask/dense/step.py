"""One step of dense prediction: the losses of each micro-batch, then one update."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import Optimizer

from attmask import distributed
from attmask.data.feeding import AnyBatch
from attmask.dense.statistics import Statistics
from attmask.hardware import Precision
from attmask.metric import Metric
from attmask.optim import set_rates
from attmask.randomness import hashed
from attmask.schedules import Now
from attmask.tuning.tuner import AnyNetwork, Tuner
from attmask.update import Update, apply_gradients_

AnyBatchType = TypeVar("AnyBatchType", bound="DenseBatch")


@runtime_checkable
class DenseBatch(AnyBatch, Protocol):
    """Images and what is to be predicted of each."""

    @property
    def images(self) -> Float[Tensor, "B C height width"]:
        """Normalised images."""

    @property
    def targets(self) -> Any:
        """What the network's losses want."""

    @property
    def first_image(self) -> int:
        """The place of the first image in the batch of all processes."""

    def part(self: AnyBatchType, places: slice) -> AnyBatchType:
        """Some of the images."""

    def to(self: AnyBatchType, device: torch.device) -> AnyBatchType:
        """The batch on a device."""


@dataclass(frozen=True)
class DenseReport:
    """The losses of each micro-batch, still on the device."""

    losses: Sequence[Mapping[str, Float[Tensor, ""]]]
    mean_loss: Float[Tensor, ""]

    def metrics(self) -> tuple[Metric, ...]:
        """Means over micro-batches, the sum of all losses first; this waits for the device."""
        means = {name: fmean(float(part[name]) for part in self.losses) for name in self.losses[0]}
        return (
            Metric("loss.total", sum(means.values()), "", False, title="loss"),
            *(
                Metric(f"loss.{name}", value, "", False, title=f"{name.replace('_', ' ')} loss")
                for name, value in means.items()
            ),
        )


def compute_gradients(
    tuner: Tuner[AnyNetwork],
    optimizer: Optimizer,
    batch: DenseBatch,
    now: Now,
    precision: Precision,
    *,
    accumulate: int = 1,
) -> DenseReport:
    """The losses and gradients of each micro-batch; no weight changes."""
    optimizer.zero_grad(set_to_none=True)
    losses, totals = [], []
    size = len(batch.images) // accumulate
    for number in range(accumulate):
        part = batch.part(slice(number * size, (number + 1) * size)).to(precision.device)
        first = batch.first_image + number * size
        keep = tuner.kept_branches(size, step=now.step, first_image=first)
        with precision.autocast(), _drawn(precision.device, tuner.seed, now.step, first):
            found: dict[str, Tensor] = tuner.call(
                part.images, part.targets, keep, share_gradients=number + 1 == accumulate
            )
        total = torch.stack(list(found.values())).sum()
        precision.backward(total / accumulate)
        losses.append({name: loss.detach() for name, loss in found.items()})
        totals.append(total.detach())
    return DenseReport(losses, distributed.average_(torch.stack(totals).mean()))


@contextmanager
def _drawn(device: torch.device, seed: int, step: int, first_image: int) -> Iterator[None]:
    """Draw dropout and samples of boxes by counter, so that a resumed run draws the same."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(int(hashed("dense step", seed, step, first_image)) % 2**63)
        yield


def update_(
    tuner: Tuner[AnyNetwork],
    optimizer: Optimizer,
    report: DenseReport,
    now: Now,
    precision: Precision,
    statistics: Statistics,
    *,
    weight_decay: float,
    clip: float | None = None,
) -> Update:
    """One update of the network by its gradients, then of the moving average.

    A step that is not finite is skipped, so the `statistics` from before it are restored too.
    """
    set_rates(optimizer, lr=now.lr, weight_decay=weight_decay)
    network = tuner.network
    update = apply_gradients_(
        optimizer, list(network.parameters()), report.mean_loss, precision, clip=clip
    )
    statistics.keep_if_(update.finite)
    if tuner.ema is not None:
        tuner.ema.update(network, now.step + 1)
    return update
