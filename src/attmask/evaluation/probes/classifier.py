"""A linear classifier on frozen features: saving, loading and accuracy."""

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

_NUMBERS_AT_ONCE = 2**24  # 64 MB of fp32, for any number of classes
_KIND = "attmask linear classifier 1"


@dataclass(frozen=True, eq=False)
class LinearClassifier:
    """Weight and bias of a linear layer, with its classes and the features it expects."""

    weight: Float[Tensor, "C W"]
    bias: Float[Tensor, "C"]
    classes: tuple[str, ...]
    readout: Embedding
    image_size: int
    network: str
    """The digest of the network it was trained on."""
    rate: float | None = None
    """The selected learning rate at a batch size of 256, if known."""
    epoch: int | None = None
    """The selected epoch, counted from 1, if one was selected."""

    @property
    def digest(self) -> str:
        """A hash of weight and bias."""
        return _hash(self.weight.cpu(), self.bias.cpu())

    def describe(self) -> dict[str, Any]:
        """Its identity, for the details of a task that uses it."""
        known = {"sha256": self.digest, "rate": self.rate, "classes": len(self.classes)}
        return known if self.epoch is None else {**known, "epoch": self.epoch}

    def logits(self, vectors: Float[Tensor, "B W"]) -> Float[Tensor, "B C"]:
        """The logits of each class in fp32."""
        vectors = vectors.to(self.weight.device, torch.float32)
        return torch.addmm(self.bias, vectors, self.weight.T)

    def save(self, file: Path) -> None:
        """Write the classifier to one file."""
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
                f"cannot write the classifier {file}: {fault.strerror or fault}; "
                "make room, or choose another folder with --cache"
            ) from fault

    @classmethod
    def load(cls, file: Path, *, network: str, image_size: int | None = None) -> "LinearClassifier":
        """Load a classifier that was trained on this network and, if given, this image size."""
        if not file.is_file():
            raise UserError(
                f"the classifier {file} does not exist; train one with the task linear, "
                "whose result names the file"
            )
        found = _read(file)
        if found.network != network:
            raise UserError(
                f"the classifier {file} was trained on network {found.network[:8]}, but this one "
                f"is {network[:8]}; train another with the task linear"
            )
        if image_size not in (None, found.image_size):
            raise UserError(
                f"image_size={image_size} was given, but {file} was trained on crops of "
                f"{found.image_size} pixels; leave image_size out"
            )
        return found


def accuracy(classifier: LinearClassifier, features: Features) -> Accuracy:
    """Top-1 and top-5 accuracy; ties in logits go to the lower class."""
    return accuracies([(classifier.weight, classifier.bias)], features)[0]


def accuracies(
    classifiers: Sequence[tuple[Float[Tensor, "C W"], Float[Tensor, "C"]]],
    features: Features,
    rows: Int[Tensor, "m"] | None = None,
) -> list[Accuracy]:
    """The accuracy of each pair of weight and bias, on all features or on some rows of them."""
    if not classifiers:
        return []
    classes, width = classifiers[0][0].shape
    labels = _checked_labels(features, width, classes)
    if not all(is_finite(weight, bias) for weight, bias in classifiers):
        raise ValueError("a classifier has weights that are not finite")
    rows = torch.arange(len(labels)) if rows is None else rows
    if len(rows) == 0:
        raise UserError("there are no test images for the classifier; give at least one")
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


def ranks(logits: Float[Tensor, "B C"], labels: Int[Tensor, "B"]) -> Int[Tensor, "B"]:
    """The rank of the true class from 0; ties go to the lower class."""
    own = logits.gather(1, labels[:, None])
    before = torch.arange(logits.shape[1], device=logits.device) < labels[:, None]
    return ((logits > own) | ((logits == own) & before)).sum(dim=1)


def is_finite(weight: Float[Tensor, "C W"], bias: Float[Tensor, "C"]) -> bool:
    """Whether all weights are finite."""
    return bool(weight.isfinite().all() and bias.isfinite().all())


def _checked_labels(features: Features, width: int, classes: int) -> Int[Tensor, "M"]:
    labels = features.labels
    if labels is None:
        raise UserError("the test images have no labels; use one folder per class")
    if len(labels) == 0:
        raise UserError("there are no test images for the classifier; give at least one")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UserError(
            f"the test images have labels {int(labels.min())} to {int(labels.max())}, but the "
            f"classifier has {classes} classes; use one that was trained on these classes"
        )
    if features.vectors.shape[1] != width:
        raise UserError(
            f"features have width {features.vectors.shape[1]}, but the classifier was trained on "
            f"width {width}; use the same blocks of the same network"
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
            f"{file} is not a linear classifier of attmask; give a file written by the task linear"
        )
    try:
        weight, bias = tensors["weight"], tensors["bias"]
        classes = tuple(str(name) for name in json.loads(told["classes"]))
        readout = Embedding.model_validate_json(told.get("readout") or told["reading"])
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
