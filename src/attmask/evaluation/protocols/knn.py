"""Weighted k-nearest-neighbour classification on frozen features."""

from collections.abc import Callable, Collection, Sequence
from typing import Annotated

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.metrics.accuracy import Accuracy
from attmask.evaluation.metrics.neighbours import nearest
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import Config, setting

_ROWS_AT_ONCE = 8192
_NAMES_SHOWN = 3
TOP_5 = 5
IDLE_CLASSES = (
    "in top-5, classes without a vote are ranked last by their index, as in the authors' code"
)


class Knn(Config):
    """The nearest training images vote on the class of each test image."""

    ks: tuple[Annotated[int, Field(ge=1)], ...] = setting(
        (20, 10, 100, 200),
        "numbers of neighbours; the first is the main result",
        paper="20",
        min_length=1,
    )
    temperature: float = setting(
        0.07, "temperature of the votes, exp(cosine / temperature)", paper="0.07", gt=0
    )
    readout: Embedding = setting(Embedding(), "features to use")
    image_size: int | None = setting(
        None, "side of the centre crop in pixels (null: the network's own)", paper="224", ge=1
    )

    def check(self, model: FrozenModel, data: Split) -> None:
        """Check the images, the crop size and the number of blocks."""
        check_images(data.train, data.test)
        check_crop(model, self.image_size, self.readout)

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """The accuracy on the test images for each k, from one search."""
        crop = CenterCrop(self.image_size or model.image_size)
        bank = extractor.features(model, data.train, crop, self.readout, "train images")
        queries = extractor.features(model, data.test, crop, self.readout, "test images")
        used = {k: min(k, len(bank.vectors)) for k in self.ks}
        with counting("searching nearest neighbours of images", len(queries.vectors)) as count:
            found = knn_accuracies(
                bank,
                queries,
                ks=sorted(set(used.values())),
                temperature=self.temperature,
                classes=data.classes,
                device=extractor.device,
                count=count,
            )
        first, *others = (found[k] for k in used.values())
        votes = used[self.ks[0]]
        headline = accuracy_metrics(first, votes)
        metrics = list(headline)
        for k, accuracy in zip(list(used)[1:], others, strict=True):
            metrics.append(_top1(accuracy, used[k], f"knn.top1@{k}"))
        notes = [
            f"k = {k} is more than the {images} training images, so all of them vote"
            for k, images in used.items()
            if k > images
        ]
        return Measures(
            tuple(metrics),
            notes=(
                *notes,
                *missing_classes(bank, queries, data.train.classes),
                *few_votes(used.values()),
            ),
            details={
                "by k": {str(k): reported(found[n], n) for k, n in used.items()},
                "k": {metric.key: votes for metric in headline},
            },
        )


def accuracy_metrics(accuracy: Accuracy, k: int) -> tuple[Metric, ...]:
    """The main metrics of k-NN: top-1, and top-5 if k is at least five."""
    top5 = Metric("knn.top5", accuracy.top5, "%", True, title=f"top-5 accuracy (k = {k})")
    return (_top1(accuracy, k, "knn.top1"), *([top5] if k >= TOP_5 else []))


def _top1(accuracy: Accuracy, k: int, key: str) -> Metric:
    return Metric(key, accuracy.top1, "%", True, title=f"top-1 accuracy (k = {k})")


def reported(accuracy: Accuracy, k: int) -> dict[str, float]:
    """The accuracies at k; top-5 only if five classes can have a vote."""
    return {"top1": accuracy.top1, **({"top5": accuracy.top5} if k >= TOP_5 else {})}


def few_votes(ks: Collection[int]) -> list[str]:
    """Notes on top-5 if fewer than five classes may have a vote."""
    left_out = sorted({k for k in ks if k < TOP_5})
    notes = [IDLE_CLASSES] if any(k >= TOP_5 for k in ks) else []
    if left_out:
        named = ", ".join(map(str, left_out))
        notes.append(f"no top-5 at k = {named}: fewer than five classes can have a vote")
    return notes


def missing_classes(bank: Features, queries: Features, names: Sequence[str]) -> list[str]:
    """A note on tested classes without a training image, if there are any."""
    if bank.labels is None or queries.labels is None:
        return []
    tested, learned = set(queries.labels.tolist()), set(bank.labels.tolist())
    missing = [names[c] for c in sorted(tested - learned)]
    if not missing:
        return []
    shown = ", ".join(missing[:_NAMES_SHOWN]) + (", ..." if len(missing) > _NAMES_SHOWN else "")
    return [f"{len(missing)} of {len(tested)} tested classes have no training image: {shown}"]


def knn_accuracy(
    bank: Features, queries: Features, *, k: int, temperature: float = 0.07, classes: int
) -> Accuracy:
    """k-NN accuracy; the k most similar bank images vote with weight exp(cosine / temperature).

    Ties in similarity go to the earlier bank image, ties in votes to the lower class. With fewer
    than five classes, top-5 counts all of them.
    """
    return knn_accuracies(bank, queries, ks=[k], temperature=temperature, classes=classes)[k]


def knn_accuracies(
    bank: Features,
    queries: Features,
    *,
    ks: Sequence[int],
    temperature: float = 0.07,
    classes: int,
    device: torch.device | None = None,
    count: Callable[[int], None] = lambda _: None,
) -> dict[int, Accuracy]:
    """The same for several k from one search; `count` is called with the number of queries done."""
    bank_labels = checked_labels("bank", bank, classes)
    query_labels = checked_labels("queries", queries, classes)
    if bank.vectors.shape[1] != queries.vectors.shape[1]:
        raise UserError(
            f"bank features have width {bank.vectors.shape[1]}, query features "
            f"{queries.vectors.shape[1]}; extract both with the same network"
        )
    for k in ks:
        if not 1 <= k <= len(bank_labels):
            raise UserError(
                f"k = {k} does not fit a bank of {len(bank_labels)} images; "
                f"use k from 1 to {len(bank_labels)}, or a larger bank"
            )
    if not temperature > 0:
        raise UserError(f"k-NN temperature {temperature} is not positive; the paper's is 0.07")
    first, five = dict.fromkeys(ks, 0), dict.fromkeys(ks, 0)
    done = 0
    for similarity, index in nearest(bank.vectors, queries.vectors, max(ks), device=device):
        truth = query_labels[done : done + len(index)]
        labels = bank_labels[index]
        for k in ks:
            rank = _rank_of_truth(similarity[:, :k], labels[:, :k], truth, temperature)
            first[k] += int((rank < 1).sum())
            five[k] += int((rank < 5).sum())
        done += len(index)
        count(len(index))
    return {k: Accuracy(top1=100 * first[k] / done, top5=100 * five[k] / done) for k in ks}


def checked_labels(name: str, features: Features, classes: int) -> Int[Tensor, "M"]:
    """The labels of the features; raises a `UserError` if labels or features are invalid."""
    if features.labels is None:
        raise UserError(f"the {name} of k-NN have no labels; use one folder per class")
    if len(features.labels) == 0:
        raise UserError(f"the {name} of k-NN are empty; at least one image is needed")
    if int(features.labels.min()) < 0 or int(features.labels.max()) >= classes:
        raise UserError(
            f"the {name} of k-NN have labels {int(features.labels.min())} to "
            f"{int(features.labels.max())} for {classes} classes; give the right number of classes"
        )
    if not all(bool(rows.isfinite().all()) for rows in features.vectors.split(_ROWS_AT_ONCE)):
        raise UserError(f"the {name} of k-NN have features that are not finite; the run diverged")
    return features.labels


def _rank_of_truth(
    similarity: Float[Tensor, "q k"],
    labels: Int[Tensor, "q k"],
    truth: Int[Tensor, "q"],
    temperature: float,
) -> Int[Tensor, "q"]:
    """The rank of the true class in the vote, from 0.

    Only classes among the neighbours have votes, so there are at most k sums per query for any
    number of classes.
    """
    # Minus the maximum, so that a low temperature cannot overflow; the order stays the same.
    nearness = similarity.double() - similarity.double().amax(dim=1, keepdim=True)
    weights = (nearness / temperature).exp()
    # Sort by label, nearest first; each distinct label gets one slot for the sum of its votes.
    ordered = labels.sort(dim=1, stable=True)
    is_new = functional.pad(ordered.values[:, 1:] != ordered.values[:, :-1], (1, 0), value=True)
    slot = is_new.cumsum(dim=1) - 1
    votes = torch.zeros_like(weights).scatter_add_(1, slot, weights.gather(1, ordered.indices))
    voted = torch.zeros_like(labels).scatter_(1, slot, ordered.values)
    counts = votes > 0  # neither an unused slot nor a weight that underflowed
    lower, same = voted < truth[:, None], voted == truth[:, None]
    true_votes = (votes * (same & counts)).sum(dim=1, keepdim=True)
    before = counts & ((votes > true_votes) | ((votes == true_votes) & lower))
    # A class without votes ranks after all with votes and after lower ones without.
    idle_before = truth - (counts & lower).sum(dim=1)
    return before.sum(dim=1) + torch.where(true_votes[:, 0] > 0, 0, idle_before)
