"""Linear classifiers with different learning rates, trained side by side on the same batches.

They share the initial weights and every batch, and each gives the same bits as if trained alone.
Cross entropy, SGD with momentum 0.9, no weight decay, all in fp32; the learning rate follows a
half cosine to zero, updated once per epoch, as in the reference. The weights of the best epoch are
kept, as in the authors' code.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attmask import checkpoint, distributed
from attmask.checkpoint import Checkpoint
from attmask.errors import UserError
from attmask.evaluation.features.forward import Features
from attmask.evaluation.metrics.accuracy import Accuracy, accuracies, is_finite
from attmask.evaluation.reporting.progress import counting
from attmask.randomness import uniform
from attmask.schedules import Cosine

log = logging.getLogger(__name__)

MOMENTUM = 0.9
INITIAL_STD = 0.01
_SECONDS_BETWEEN_SAVES = 10.0  # a training of a few seconds should not spend them on saving

LabelledBatch = tuple[Float[Tensor, "B W"], Int[Tensor, "B"]]
Batches = Callable[[int], Iterator[LabelledBatch]]
"""The batches of an epoch, or this process's share of each; every epoch has the same number."""
AccuracyCurve = list[list[Accuracy | None]]
"""The accuracy after each epoch, for each learning rate; None if the weights overflowed."""


class Probe:
    """One linear classifier in training: cross entropy, SGD with momentum, all in fp32."""

    def __init__(
        self, schedule: Cosine, weight: Float[Tensor, "C W"], bias: Float[Tensor, "C"]
    ) -> None:
        self.schedule = schedule
        self.parameters = nn.Parameter(weight.clone()), nn.Parameter(bias.clone())
        self.optimizer = torch.optim.SGD(self.parameters, lr=schedule(0), momentum=MOMENTUM)
        for parameter in self.parameters:  # now, so that they are saved before the first step too
            buffer = torch.zeros_like(parameter, requires_grad=False)
            self.optimizer.state[parameter]["momentum_buffer"] = buffer
        self.best_weight, self.best_bias = weight.clone(), bias.clone()
        """Weight and bias after the epoch with the best test accuracy so far."""

    @property
    def weight(self) -> Float[Tensor, "C W"]:
        """The weights without a gradient; they share memory with the parameter."""
        return self.parameters[0].detach()

    @property
    def bias(self) -> Float[Tensor, "C"]:
        """The biases without a gradient."""
        return self.parameters[1].detach()

    def step(
        self, vectors: Float[Tensor, "B W"], labels: Int[Tensor, "B"], images: float, epoch: int
    ) -> None:
        """Train on this process's share of a batch; `images` is the mean share of all processes."""
        loss = functional.cross_entropy(
            functional.linear(vectors, *self.parameters), labels, reduction="sum"
        )
        self.optimizer.zero_grad()
        (loss / images).backward()
        for parameter in self.parameters:
            assert parameter.grad is not None
            distributed.average_(parameter.grad)
        self.optimizer.param_groups[0]["lr"] = self.schedule(epoch)
        self.optimizer.step()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors that training changes."""
        momenta = (self.optimizer.state[each]["momentum_buffer"] for each in self.parameters)
        return self.weight, self.bias, *momenta, self.best_weight, self.best_bias

    def keep(self) -> None:
        """Keep the current weights as the best."""
        self.best_weight.copy_(self.weight)
        self.best_bias.copy_(self.bias)


class Probes:
    """One linear classifier for each learning rate.

    Each has its own tensors: one large product for all rates would sum in another order than one
    product per rate, and would not be faster with many classes.
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
        start = (start * INITIAL_STD).to(device)
        self.epochs = epochs
        self.learned = 0
        """The number of images trained on so far, over all processes and epochs."""
        self.each = [
            Probe(Cosine(rate, 0.0, epochs), start, torch.zeros(classes, device=device))
            for rate in rates
        ]
        self.best_top1 = [-1.0] * len(self.each)
        """The test accuracy of the best weights, for each learning rate."""

    def step(self, vectors: Float[Tensor, "B W"], labels: Int[Tensor, "B"], *, epoch: int) -> None:
        """Train on one batch; each of several processes has a share of any size."""
        device = self.each[0].weight.device
        vectors, labels = vectors.to(device, torch.float32), labels.to(device)
        # The mean share, because gradients are averaged over the processes.
        images = float(distributed.average_(torch.tensor(float(len(labels)), device=device)))
        self.learned += round(images * distributed.world_size())
        if images == 0:
            return
        for probe in self.each:
            probe.step(vectors, labels, images, epoch)

    def accuracies(
        self, features: Features, rows: Int[Tensor, "m"] | None = None
    ) -> list[Accuracy | None]:
        """The accuracy of each classifier; None if its weights are not finite."""
        finite = [is_finite(probe.weight, probe.bias) for probe in self.each]
        able = [(p.weight, p.bias) for p, fine in zip(self.each, finite, strict=True) if fine]
        found = iter(accuracies(able, features, rows))
        return [next(found) if fine else None for fine in finite]

    def keep_best(self, found: Sequence[Accuracy | None]) -> None:
        """Keep the weights of each classifier that improved; ties go to the earlier epoch."""
        for index, (probe, accuracy) in enumerate(zip(self.each, found, strict=True)):
            if accuracy is not None and accuracy.top1 > self.best_top1[index]:
                self.best_top1[index] = accuracy.top1
                probe.keep()

    def state(self) -> dict[str, Tensor]:
        """The tensors of all classifiers."""
        return {
            f"{index}.{slot}": tensor.cpu()
            for index, probe in enumerate(self.each)
            for slot, tensor in enumerate(probe.tensors)
        }

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Load the tensors that `state` returned."""
        for index, probe in enumerate(self.each):
            for slot, tensor in enumerate(probe.tensors):
                tensor.copy_(state[f"{index}.{slot}"])


def order(images: int, *, batch_size: int, seed: int, epoch: int) -> list[Int[Tensor, "_"]]:
    """All images in a new order for each epoch, in batches; the last may be smaller."""
    numbers = uniform("order of a probe's images", seed, epoch, np.arange(images))
    return list(torch.from_numpy(numbers.argsort(kind="stable")).split(batch_size))


def share_of(batch: Int[Tensor, "B"]) -> Int[Tensor, "_"]:
    """This process's share of a batch, which may be empty."""
    rank, world = distributed.rank(), distributed.world_size()
    return batch[rank * len(batch) // world : (rank + 1) * len(batch) // world]


def train(
    probes: Probes, batches: Batches, images: int, test: Features | None, keep: Path | None
) -> AccuracyCurve:
    """Train for all epochs of `images` images, test after each and keep the best weights.

    With `keep`, a folder for exactly this training, an interrupted training resumes.
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
            count(left)  # unreadable images, and larger shares of other processes
            curve.append([] if test is None else probes.accuracies(test))
            if test is not None:
                probes.keep_best(curve[-1])
            late = time.monotonic() - saved >= _SECONDS_BETWEEN_SAVES
            if keep is not None and (late or epoch + 1 == probes.epochs):
                _save(probes, curve, keep)
                saved = time.monotonic()
    return curve


def left_out(probes: Probes, images: int) -> int:
    """The number of images not trained on, averaged over the epochs and rounded up."""
    return images - probes.learned // probes.epochs


@dataclass(frozen=True)
class Chosen:
    """The learning rate with the best test accuracy and its results; epochs count from 1."""

    index: int
    best_epoch: int
    best: Accuracy
    last: Accuracy


def choose(curve: AccuracyCurve, rates: Sequence[float]) -> Chosen:
    """The rate with the best epoch; ties go to the better last epoch, then to the earlier rate."""
    found = [c for c in (summary(curve, index) for index in range(len(rates))) if c is not None]
    if not found:
        raise overflowed(rates)
    return max(found, key=lambda c: (c.best.top1, c.last.top1, -c.index))


def overflowed(rates: Sequence[float]) -> UserError:
    """The error for weights that overflowed at every learning rate."""
    tried = ", ".join(f"{rate:g}" for rate in rates)
    return UserError(
        f"the weights overflow at every learning rate ({tried}); use smaller ones, "
        "e.g. rates=[1e-5,1e-4]"
    )


def summary(curve: AccuracyCurve, index: int) -> Chosen | None:
    """The results of one learning rate, or None if its weights overflowed."""
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
    """Load the last saved epoch into the probes; returns the curve so far."""
    try:
        found = checkpoint.load_newest(folder)
    except UserError as fault:
        log.warning("%s; the linear classifiers are trained again from the start", fault)
        found = None
    done = 0 if found is None else found.step
    if not distributed.all_agree(done == distributed.from_main(done)):
        raise UserError(
            f"not all processes can read the training saved in {folder}; "
            "choose a shared folder with --cache"
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
        log.info("linear classifiers: resuming after epoch %d of %d", done, probes.epochs)
    return curve
