"""One step of fine-tuning: mixed images, smooth targets, cross entropy, one update."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float
from timm.data.mixup import Mixup, mixup_target
from timm.loss import SoftTargetCrossEntropy
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from attmask import distributed
from attmask.finetuning.augment import seeded
from attmask.finetuning.batch import LabelledBatch
from attmask.finetuning.classifier import Classifier
from attmask.finetuning.config import AugmentConfig
from attmask.finetuning.schedules import FinetuneNow
from attmask.hardware import Precision
from attmask.metric import Metric
from attmask.optim import set_rates
from attmask.randomness import hashed
from attmask.tuning.tuner import Tuner
from attmask.update import Update, apply_gradients_


@dataclass(frozen=True)
class FinetuneReport:
    """Loss and accuracy of each micro-batch, still on the device."""

    losses: Sequence[Float[Tensor, ""]]
    correct: Sequence[Float[Tensor, ""]]
    """The share of images whose strongest target is predicted; with several, of right labels."""
    mean_loss: Float[Tensor, ""]
    multi_label: bool = False

    def metrics(self) -> tuple[Metric, ...]:
        """Means over micro-batches; this waits for the device."""
        loss, correct = (fmean(map(float, parts)) for parts in (self.losses, self.correct))
        key, title = "train.top1", "accuracy on training batches"
        if self.multi_label:
            key, title = "train.labels", "right labels on training batches"
        return (
            Metric("loss.total", loss, "nats", False, title="loss"),
            Metric(key, 100 * correct, "%", True, title=title),
        )


class Finetuner(Tuner[Classifier]):
    """A classifier in training, with its moving average if there is one."""

    def __init__(
        self,
        network: Classifier,
        *,
        drop_path: float,
        class_weights: Float[Tensor, " C"] | None,
        multi_label: bool,
        ema: float | None,
        seed: int,
    ) -> None:
        super().__init__(network, drop_path=drop_path, ema=ema, seed=seed)
        self.multi_label = multi_label
        self.class_weights: Tensor | None
        self.register_buffer("class_weights", class_weights, persistent=False)

    def logits(
        self,
        images: Float[Tensor, "B C height width"],
        now: FinetuneNow,
        *,
        first_image: int,
        share_gradients: bool,
    ) -> Float[Tensor, "B classes"]:
        """The logits of training images, with drop path."""
        keep, frozen = None, now.backbone_frozen and not self.is_sharded
        if not now.backbone_frozen:
            keep = self.kept_branches(len(images), step=now.step, first_image=first_image)
        logits: Tensor = self.call(images, keep, frozen=frozen, share_gradients=share_gradients)
        return logits.float()

    def loss(
        self, logits: Float[Tensor, "B classes"], targets: Float[Tensor, "B classes"]
    ) -> Float[Tensor, ""]:
        """Cross entropy with soft targets, or binary cross entropy for several labels an image."""
        weights = self.class_weights
        if self.multi_label:
            return functional.binary_cross_entropy_with_logits(logits, targets, pos_weight=weights)
        if weights is None:
            loss: Tensor = SoftTargetCrossEntropy()(logits, targets)
            return loss
        return functional.cross_entropy(logits, targets, weight=weights)


class Targets:
    """Classes become targets of the loss: mixed by timm where images are mixed, and smoothed."""

    def __init__(
        self, config: AugmentConfig, classes: int, *, multi_label: bool, seed: int
    ) -> None:
        self.smoothing, self.classes, self.seed = config.smoothing, classes, seed
        self.multi_label = multi_label
        self.mixup = None
        if config.mixes:
            self.mixup = Mixup(
                mixup_alpha=config.mixup,
                cutmix_alpha=config.cutmix,
                prob=config.mix_probability,
                switch_prob=config.mix_switch,
                label_smoothing=config.smoothing,
                num_classes=classes,
            )

    def mixed(
        self, images: Float[Tensor, "B C height width"], labels: Tensor, step: int
    ) -> tuple[Float[Tensor, "B C height width"], Float[Tensor, "B classes"]]:
        """The images of this process and their targets; timm mixes images in place."""
        if self.multi_label:
            return images, labels * (1 - self.smoothing) + 0.5 * self.smoothing
        if self.mixup is None:
            return images, mixup_target(labels, self.classes, 1.0, self.smoothing)
        number = int(hashed("mixup", self.seed, step, distributed.rank()))
        with seeded(number):
            images, targets = self.mixup(images, labels)
        return images, targets


def compute_gradients(
    finetuner: Finetuner,
    optimizer: Optimizer,
    batch: LabelledBatch,
    targets: Targets,
    now: FinetuneNow,
    precision: Precision,
    *,
    accumulate: int = 1,
) -> FinetuneReport:
    """Mixed images, logits and loss for each micro-batch; no weight changes."""
    optimizer.zero_grad(set_to_none=True)
    device = precision.device
    images = batch.images.to(device, non_blocking=True)
    images, wanted = targets.mixed(images, batch.labels.to(device, non_blocking=True), now.step)
    losses, correct = [], []
    size = len(images) // accumulate
    for number, (part, goal) in enumerate(
        zip(images.split(size), wanted.split(size), strict=True), start=1
    ):
        first = batch.first_image + (number - 1) * size
        with precision.autocast():
            logits = finetuner.logits(
                part, now, first_image=first, share_gradients=number == accumulate
            )
        loss = finetuner.loss(logits, goal)
        precision.backward(loss / accumulate)
        losses.append(loss.detach())
        correct.append(_correct(logits.detach(), goal, multi_label=finetuner.multi_label))
    mean_loss = distributed.average_(torch.stack(losses).mean())
    return FinetuneReport(losses, correct, mean_loss, finetuner.multi_label)


def _correct(
    logits: Float[Tensor, "B classes"], targets: Float[Tensor, "B classes"], *, multi_label: bool
) -> Float[Tensor, ""]:
    if multi_label:
        return ((logits > 0) == (targets > 0.5)).float().mean()
    return (logits.argmax(1) == targets.argmax(1)).float().mean()


def update_(
    finetuner: Finetuner,
    optimizer: Optimizer,
    report: FinetuneReport,
    now: FinetuneNow,
    precision: Precision,
    *,
    weight_decay: float,
    clip: float | None = None,
) -> Update:
    """One update of the network by its gradients, then of the moving average."""
    set_rates(optimizer, lr=now.lr, weight_decay=weight_decay)
    network = finetuner.network
    if now.backbone_frozen:
        for parameter in network.backbone.parameters():
            parameter.grad = None
    update = apply_gradients_(
        optimizer, list(network.parameters()), report.mean_loss, precision, clip=clip
    )
    if finetuner.ema is not None:
        finetuner.ema.update(network, now.step + 1)
    return update
