"""Evaluation of a classifier in training: the logits of held-out images, on all processes."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask import distributed
from attmask.agreement import SharedError
from attmask.data.config import DataConfig
from attmask.data.source import Source
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.forward import Autocast
from attmask.evaluation.features.images import ImageReader, say_unreadable
from attmask.evaluation.features.lockstep import Lockstep
from attmask.evaluation.metrics.classification import Answers, multi_label, single_label
from attmask.evaluation.reporting.progress import counting
from attmask.finetuning.classifier import Classifier
from attmask.finetuning.labels import Classes
from attmask.metric import Metric

BATCH = 64
SELECTS, SELECTS_MULTI_LABEL = "classify.top1", "classify.map"
"""The keys of the metrics that select the best network."""


@dataclass(frozen=True)
class Scored:
    """The logits of the readable images, and their classes."""

    logits: Float[Tensor, "M classes"]
    labels: Tensor
    """One class an image, or a row of 0 and 1."""


class ClassifierEvaluation:
    """Evaluates a classifier on held-out images; all processes of a group call it together."""

    def __init__(
        self,
        source: Source,
        classes: Classes,
        data: DataConfig,
        *,
        image_size: int,
        workers: int,
    ) -> None:
        self.source, self.classes = source, classes
        self.reader = ImageReader(source, CenterCrop(image_size), data)
        self.workers = workers

    def __call__(
        self,
        network: Classifier,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> tuple[Metric, ...]:
        """The metrics of the images, the one that selects the best network first."""
        return measures(self.score(network, autocast, stopped), self.classes)

    def score(
        self,
        network: Classifier,
        autocast: Autocast,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Scored:
        """The logits of all images, of which each process computes its share."""
        images = len(self.source)
        share = distributed.share_of(images)
        weight, bias = (_whole(part).float() for part in (network.head.weight, network.head.bias))
        with counting("evaluating", images) as count:
            lockstep = Lockstep(network.backbone, self.reader.data, autocast, count, stopped)
            crops = self.reader.batches(share, batch_size=BATCH, workers=self.workers)
            logits: list[Tensor] = []
            readable: list[Tensor] = []
            for batch in lockstep.forward(crops, network.readout, self.reader.blank()):
                kept = len(share) - sum(len(part) for part in readable)  # the last are blank
                with torch.no_grad():
                    logits.append(functional.linear(batch.values, weight, bias).cpu()[:kept])
                readable.append(batch.readable[:kept])
        classes = len(self.classes)
        own = torch.cat([torch.empty(0, classes), *logits])
        is_read = torch.cat([torch.empty(0, dtype=torch.bool), *readable])
        gathered = distributed.gather_rows(own)
        everywhere = distributed.gather_rows(is_read.byte()).bool()
        if not everywhere.all():
            unread = (~everywhere).nonzero()[:, 0].tolist()
            if len(unread) == images:
                raise SharedError(f"no image of {self.source.root} to evaluate on can be read")
            say_unreadable(self.source, unread, quiet=not distributed.is_main())
        rows = everywhere.nonzero()[:, 0]
        assert self.source.labels is not None
        labels = self.classes.of(np.asarray(self.source.labels)[rows.numpy()])
        return Scored(gathered[rows], torch.from_numpy(labels))


def _whole(tensor: Tensor) -> Tensor:
    """A tensor that may be sharded; all processes take part."""
    detached = tensor.detach()
    return detached.full_tensor() if distributed.is_sharded(detached) else detached


def measures(scored: Scored, classes: Classes) -> tuple[Metric, ...]:
    """The metrics of the task classify, the one that selects the best network first."""
    if classes.multi_label:
        return multi_label(scored.labels > 0, scored.logits, classes.names).metrics
    return single_label(Answers.of(scored.labels, scored.logits), classes.names).metrics
