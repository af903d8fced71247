"""A linear classifier on frozen features: how it is kept, and how often it is right."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from attmask import atomic
from attmask.errors import UserError
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.metrics.accuracy import Accuracy

_NUMBERS_AT_ONCE = 2**24  # 64 MB of fp32, whatever the number of classes
_KIND = "attmask linear classifier 1"


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """Frozen features to classes."""

    weight: Float[Tensor, "C W"]
    bias: Float[Tensor, "C"]
    classes: tuple[str, ...]
    readout: Embedding
    image_size: int
    network: str
    """The digest of the network it was trained on."""
    rate: float | None = None
    """The learning rate for 256 images a step that was chosen, where it is known."""
    epoch: int | None = None
    """The epoch after which these were the weights, where it was chosen; counted from 1."""

    @property
    def digest(self) -> str:
        """A hash of its weights, which tells it from all others."""
        return _hash(self.weight.cpu(), self.bias.cpu())

    def describe(self) -> dict[str, Any]:
        """Which one it is, for the details of a task that asked it."""
        known = {"sha256": self.digest, "rate": self.rate, "classes": len(self.classes)}
        return known if self.epoch is None else {**known, "epoch": self.epoch}

    def scores(self, vectors: Float[Tensor, "B W"]) -> Float[Tensor, "B C"]:
        """A score for each class, in fp32; the highest is the answer."""
        vectors = vectors.to(self.weight.device, torch.float32)
        return torch.addmm(self.bias, vectors, self.weight.T)

    def save(self, file: Path) -> None:
        """Write everything to one file."""
        tensors = {"weight": self.weight.cpu().contiguous(), "bias": self.bias.cpu().contiguous()}
        told = {
            "kind": _KIND,
            "classes": json.dumps(self.classes),
            "readout": self.readout.model_dump_json(),
            "image_size": str(self.image_size),
            "network": self.network,
            "sha256": self.digest,
            "rate": json.dumps(self.rate),
            "epoch": json.dumps(self.epoch),
        }
        try:
            atomic.write(file, save(tensors, told))
        except OSError as fault:
            raise UserError(
                f"cannot keep the classifier {file}: {fault.strerror or fault}; "
                "make room, or choose another folder with --cache"
            ) from fault

    @classmethod
    def load(cls, file: Path, *, network: str, image_size: int | None = None) -> "LinearClassifier":
        """Read a classifier that was trained on this network, and on crops of this size if any."""
        if not file.is_file():
            raise UserError(
                f"there is no classifier {file}; train one with the task linear, "
                "its result names the file"
            )
        found = _read(file)
        if found.network != network:
            raise UserError(
                f"the classifier {file} was trained on network {found.network[:8]}, but this one "
                f"is {network[:8]}; train another with the task linear"
            )
        if image_size not in (None, found.image_size):
            raise UserError(
                f"image_size={image_size} was asked, but {file} was trained on crops of "
                f"{found.image_size} pixels; leave image_size out"
            )
        return found


def accuracy(classifier: LinearClassifier, features: Features) -> Accuracy:
    """How often the classifier is right; of classes with equal scores the lower number wins."""
    return accuracies([(classifier.weight, classifier.bias)], features)[0]


def accuracies(
    classifiers: Sequence[tuple[Float[Tensor, "C W"], Float[Tensor, "C"]]],
    features: Features,
    rows: Int[Tensor, "m"] | None = None,
) -> list[Accuracy]:
    """How often each pair of weights and biases is right, on all features or some rows of them."""
    if not classifiers:
        return []
    classes, width = classifiers[0][0].shape
    labels = _checked_labels(features, width, classes)
    if not all(is_finite(weight, bias) for weight, bias in classifiers):
        raise ValueError("a classifier with weights that are not finite gives no answers")
    rows = torch.arange(len(labels)) if rows is None else rows
    if len(rows) == 0:
        raise UserError("there are no images to test a classifier on; give at least one")
    first, five = ([0] * len(classifiers) for _ in range(2))
    for some in rows.split(max(1, _NUMBERS_AT_ONCE // max(classes, width))):
        device = classifiers[0][0].device
        vectors, wanted = features.vectors[some].float().to(device), labels[some].to(device)
        for index, (weight, bias) in enumerate(classifiers):
            rank = ranks(torch.addmm(bias, vectors, weight.T), wanted)
            first[index] += int((rank < 1).sum())
            five[index] += int((rank < 5).sum())
    return [
        Accuracy(100 * one / len(rows), 100 * of_five / len(rows))
        for one, of_five in zip(first, five, strict=True)
    ]


def ranks(scores: Float[Tensor, "B C"], labels: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """How many classes come before the right one: those with more, and equals of lower number."""
    own = scores.gather(1, labels[:, None])
    before = torch.arange(scores.shape[1], device=scores.device) < labels[:, None]
    return ((scores > own) | ((scores == own) & before)).sum(dim=1)


def is_finite(weight: Float[Tensor, "C W"], bias: Float[Tensor, "C"]) -> bool:
    """Whether a classifier can answer."""
    return bool(weight.isfinite().all() and bias.isfinite().all())


def _checked_labels(features: Features, width: int, classes: int) -> Int[Tensor, "M"]:
    labels = features.labels
    if labels is None:
        raise UserError("the images to test on have no labels; put them in one folder a class")
    if len(labels) == 0:
        raise UserError("there are no images to test a classifier on; give at least one")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UserError(
            f"the images to test on have labels {int(labels.min())} to {int(labels.max())}, but "
            f"the classifier knows {classes} classes; use one that was trained on these classes"
        )
    if features.vectors.shape[1] != width:
        raise UserError(
            f"features are {features.vectors.shape[1]} wide, but the classifier was trained on "
            f"{width}; read the same blocks of the same network"
        )
    return labels


def _read(file: Path) -> LinearClassifier:
    try:
        with safe_open(file, framework="pt") as opened:
            told: dict[str, str] = opened.metadata() or {}
        tensors = load_file(file)
    except (SafetensorError, OSError) as fault:
        raise _damaged(file) from fault
    if told.get("kind") != _KIND:
        raise UserError(
            f"{file} is not a linear classifier of attmask; give one that the task linear wrote"
        )
    try:
        weight, bias = tensors["weight"], tensors["bias"]
        classes = tuple(str(name) for name in json.loads(told["classes"]))
        readout = Embedding.model_validate_json(told["readout"])
        size, network, digest = int(told["image_size"]), told["network"], told["sha256"]
        rate, epoch = (json.loads(told.get(name, "null")) for name in ("rate", "epoch"))
    except (KeyError, ValueError) as fault:
        raise _damaged(file) from fault
    if digest != _hash(weight, bias) or len(classes) != len(weight):
        raise _damaged(file)
    return LinearClassifier(weight, bias, classes, readout, size, network, rate, epoch)


def _damaged(file: Path) -> UserError:
    return UserError(
        f"the classifier {file} is damaged; delete it and train another with the task linear"
    )


def _hash(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
