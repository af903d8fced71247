"""Linear classifiers of different learning rates, trained side by side on the same batches.

They share the initial weights and every batch, so that each learns bit for bit what it would learn
alone. Cross entropy, SGD with momentum 0.9, no weight decay, all in fp32; the learning rate falls
to zero along half a cosine, one step an epoch, as in the reference. The weights of the best epoch
are kept, as the authors' code does.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attmask import checkpoint, distributed
from attmask.checkpoint import Checkpoint
from attmask.errors import UserError
from attmask.evaluation.features.forward import Features
from attmask.evaluation.metrics.accuracy import Accuracy
from attmask.evaluation.probes.classifier import accuracies, is_finite
from attmask.evaluation.reporting.progress import counting
from attmask.randomness import uniform
from attmask.schedules import Cosine

log = logging.getLogger(__name__)

MOMENTUM = 0.9
INITIAL_DEVIATION = 0.01
_SECONDS_BETWEEN_SAVES = 10.0  # so that a run of a few seconds does not spend them on its disk

LabelledBatch = tuple[Float[Tensor, "B W"], Int[Tensor, "B"]]
Batches = Callable[[int], Iterator[LabelledBatch]]
"""The batches of an epoch, or this process's share of each; all epochs have as many."""
AccuracyCurve = list[list[Accuracy | None]]
"""The accuracy after each epoch, for each learning rate; None where the weights overflowed."""


@dataclass(frozen=True, eq=False)
class Probe:
    """One linear classifier in training."""

    schedule: Cosine
    weight: Float[Tensor, "C W"]
    bias: Float[Tensor, "C"]
    weight_speed: Float[Tensor, "C W"]
    bias_speed: Float[Tensor, "C"]
    best_weight: Float[Tensor, "C W"]
    best_bias: Float[Tensor, "C"]
    """Weight and bias after the epoch with the best test accuracy so far."""

    def step(
        self, vectors: Float[Tensor, "B W"], labels: Int[Tensor, "B"], images: float, rate: float
    ) -> None:
        """Learn from a share of a batch, where all processes have so many images on average."""
        # The gradient of the mean cross entropy: (softmax - one hot) / images, for each score.
        error = torch.addmm(self.bias, vectors, self.weight.T).softmax(dim=1)
        error[torch.arange(len(labels), device=labels.device), labels] -= 1
        error /= images
        for parameter, speed, gradient in (
            (self.weight, self.weight_speed, error.T @ vectors),
            (self.bias, self.bias_speed, error.sum(dim=0)),
        ):
            speed.mul_(MOMENTUM).add_(distributed.average_(gradient))
            parameter.add_(speed, alpha=-rate)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that changes while it learns."""
        moving = (self.weight, self.bias, self.weight_speed, self.bias_speed)
        return *moving, self.best_weight, self.best_bias

    def keep(self) -> None:
        """Take the weights as they are now for the best."""
        self.best_weight.copy_(self.weight)
        self.best_bias.copy_(self.bias)


class Probes:
    """One linear classifier for each learning rate.

    Each has tensors of its own: the sums of one large product for all rates would come in another
    order than those of a product for one, and be no faster where there are many classes.
    """

    def __init__(
        self,
        rates: Sequence[float],
        *,
        classes: int,
        width: int,
        epochs: int,
        seed: int,
        device: torch.device,
    ) -> None:
        start = torch.randn(classes, width, generator=torch.Generator().manual_seed(seed))
        start = (start * INITIAL_DEVIATION).to(device)
        bias = torch.zeros(classes, device=device)
        self.epochs = epochs
        self.learned = 0
        """Images learned from so far, by all processes, counted in every epoch."""
        self.each = [
            Probe(
                schedule=Cosine(rate, 0.0, epochs),
                weight=start.clone(),
                bias=bias.clone(),
                weight_speed=torch.zeros_like(start),
                bias_speed=bias.clone(),
                best_weight=start.clone(),
                best_bias=bias.clone(),
            )
            for rate in rates
        ]
        self.best_top1 = [-1.0] * len(self.each)
        """The test accuracy of the weights that are kept, for each rate."""

    @torch.no_grad()
    def step(self, vectors: Float[Tensor, "B W"], labels: Int[Tensor, "B"], *, epoch: int) -> None:
        """Learn from one batch; with several processes each has its share, of any size."""
        device = self.each[0].weight.device
        vectors, labels = vectors.to(device, torch.float32), labels.to(device)
        # The mean share, because gradients are then averaged over the processes.
        images = float(distributed.average_(torch.tensor(float(len(labels)), device=device)))
        self.learned += round(images * distributed.world_size())
        if images == 0:
            return
        for probe in self.each:
            probe.step(vectors, labels, images, probe.schedule(epoch))

    def accuracies(
        self, features: Features, rows: Int[Tensor, "m"] | None = None
    ) -> list[Accuracy | None]:
        """How often each is right; None for those whose weights are not finite."""
        finite = [is_finite(probe.weight, probe.bias) for probe in self.each]
        able = [(p.weight, p.bias) for p, fine in zip(self.each, finite, strict=True) if fine]
        found = iter(accuracies(able, features, rows))
        return [next(found) if fine else None for fine in finite]

    def keep_best(self, found: Sequence[Accuracy | None]) -> None:
        """Keep the weights of each rate that has just reached its best accuracy; of equally good
        epochs the earlier one stays."""
        for index, (probe, accuracy) in enumerate(zip(self.each, found, strict=True)):
            if accuracy is not None and accuracy.top1 > self.best_top1[index]:
                self.best_top1[index] = accuracy.top1
                probe.keep()

    def state(self) -> dict[str, Tensor]:
        """All that changes while they learn."""
        return {
            f"{index}.{place}": tensor.cpu()
            for index, probe in enumerate(self.each)
            for place, tensor in enumerate(probe.tensors)
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Go on from there."""
        for index, probe in enumerate(self.each):
            for place, tensor in enumerate(probe.tensors):
                tensor.copy_(state[f"{index}.{place}"])


def order(images: int, *, batch_size: int, seed: int, epoch: int) -> list[Int[Tensor, "_"]]:
    """All images in a new order each epoch, in batches, of which the last may be smaller."""
    numbers = uniform("order of a probe's images", seed, epoch, np.arange(images))
    return list(torch.from_numpy(numbers.argsort(kind="stable")).split(batch_size))


def share_of(batch: Int[Tensor, "B"]) -> Int[Tensor, "_"]:
    """What this process takes of a batch: its part of the row, which may be empty."""
    rank, world = distributed.rank(), distributed.world_size()
    return batch[rank * len(batch) // world : (rank + 1) * len(batch) // world]


def train(
    probes: Probes, batches: Batches, images: int, test: Features | None, keep: Path | None
) -> AccuracyCurve:
    """Train for all epochs of `images` images, test after each and keep the best weights.

    With `keep`, a folder that stands for exactly this training, it goes on where it was stopped.
    """
    curve = [] if keep is None else _resume(probes, keep)
    saved = time.monotonic()
    with counting("training linear classifiers on images", probes.epochs * images) as count:
        count(len(curve) * images)
        for epoch in range(len(curve), probes.epochs):
            left = images
            for vectors, labels in batches(epoch):
                probes.step(vectors, labels, epoch=epoch)
                seen = min(left, len(labels) * distributed.world_size())
                count(seen)
                left -= seen
            count(left)  # pictures that could not be read, and what other processes had more
            curve.append([] if test is None else probes.accuracies(test))
            if test is not None:
                probes.keep_best(curve[-1])
            late = time.monotonic() - saved >= _SECONDS_BETWEEN_SAVES
            if keep is not None and (late or epoch + 1 == probes.epochs):
                _save(probes, curve, keep)
                saved = time.monotonic()
    return curve


def left_out(probes: Probes, images: int) -> int:
    """How many of the images the probes did not learn from, on average over epochs, rounded up."""
    return images - probes.learned // probes.epochs


@dataclass(frozen=True)
class Chosen:
    """The learning rate with the best test accuracy, and its numbers; epochs count from 1."""

    index: int
    best_epoch: int
    best: Accuracy
    last: Accuracy


def choose(curve: AccuracyCurve, rates: Sequence[float]) -> Chosen:
    """The best epoch of the best rate; of equals the better last epoch, then the earlier rate."""
    found = [c for c in (summary(curve, index) for index in range(len(rates))) if c is not None]
    if not found:
        raise overflowed(rates)
    return max(found, key=lambda c: (c.best.top1, c.last.top1, -c.index))


def overflowed(rates: Sequence[float]) -> UserError:
    """What to say where no learning rate is left."""
    return UserError(
        f"no learning rate of {', '.join(f'{rate:g}' for rate in rates)} keeps the weights "
        "finite; use smaller ones, e.g. rates=[1e-5,1e-4]"
    )


def summary(curve: AccuracyCurve, index: int) -> Chosen | None:
    """The numbers of one learning rate, or None where its weights overflowed."""
    ours = [epoch[index] for epoch in curve]
    last = ours[-1]
    known = [(a.top1, -i, a) for i, a in enumerate(ours) if a is not None]
    if last is None or not known:
        return None
    _, before, best = max(known, key=lambda entry: entry[:2])
    return Chosen(index, 1 - before, best, last)


def _save(probes: Probes, curve: AccuracyCurve, folder: Path) -> None:
    if not distributed.is_main():
        return
    plain = [[None if a is None else [a.top1, a.top5] for a in epoch] for epoch in curve]
    tensors = {"probes": probes.state()}
    info = {"curve": plain, "learned": probes.learned}
    checkpoint.save(folder, Checkpoint(len(curve), tensors, info), keep=1)


def _resume(probes: Probes, folder: Path) -> AccuracyCurve:
    """The curve up to the epoch that was saved last, from which the probes then go on."""
    try:
        found = checkpoint.load_newest(folder)
    except UserError as fault:
        log.warning("%s; the linear classifiers are trained anew", fault)
        found = None
    done = 0 if found is None else found.step
    if not distributed.all_agree(done == distributed.from_main(done)):
        raise UserError(
            f"the training kept in {folder} cannot be read by all processes; "
            "choose a folder that all of them share with --cache"
        )
    if found is None:
        return []
    stored: list[list[list[float] | None]] = found.info["curve"]
    curve: AccuracyCurve = [
        [None if a is None else Accuracy(*a) for a in epoch] for epoch in stored
    ]
    probes.load_state(found.tensors["probes"])
    probes.learned = int(found.info["learned"])
    for index in range(len(probes.each)):
        seen = [epoch[index] for epoch in curve if epoch]
        probes.best_top1[index] = max((a.top1 for a in seen if a is not None), default=-1.0)
    if done < probes.epochs:
        log.info("linear classifiers: going on after epoch %d of %d", done, probes.epochs)
    return curve
