"""A linear classifier on the features of a network: its classes, and its file."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from attmask import atomic
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.readout import Embedding

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
    multi_label: bool = False
    """Whether an image may have any number of the classes, each with a probability of its own."""

    @property
    def digest(self) -> str:
        """A hash of weight and bias."""
        return _hash(self.weight.cpu(), self.bias.cpu())

    def describe(self) -> dict[str, Any]:
        """Its identity, for the details of a task that uses it."""
        known = {"sha256": self.digest, "rate": self.rate, "classes": len(self.classes)}
        if self.epoch is not None:
            known["epoch"] = self.epoch
        return {**known, "multi-label": True} if self.multi_label else known

    def logits(self, vectors: Float[Tensor, "B W"]) -> Float[Tensor, "B C"]:
        """The logits of each class in fp32."""
        vectors = vectors.to(self.weight.device, torch.float32)
        return torch.addmm(self.bias, vectors, self.weight.T)

    def probabilities(self, vectors: Float[Tensor, "B W"]) -> Float[Tensor, "B C"]:
        """The probability of each class: a softmax, or a sigmoid of each if multi-label."""
        logits = self.logits(vectors)
        return logits.sigmoid() if self.multi_label else logits.softmax(dim=1)

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
            "multi_label": json.dumps(self.multi_label),
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


def class_indices(classifier: LinearClassifier, source: Source) -> Int[Tensor, "C"]:
    """The index that the classifier has for each class of a source, by name."""
    assert source.labels is not None
    numbers = {name: number for number, name in enumerate(classifier.classes)}
    asked = [source.classes[number] for number in np.unique(source.labels)]
    unknown = [name for name in asked if name not in numbers]
    if unknown:
        raise UserError(
            f"the classifier does not know {len(unknown)} of the {len(asked)} classes of "
            f"{source.root}, the first is {unknown[0]}; give one that was trained on these classes"
        )
    return torch.tensor([numbers.get(name, -1) for name in source.classes])


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
        multi_label = bool(json.loads(told.get("multi_label", "false")))
    except (KeyError, ValueError) as fault:
        raise _damaged(file) from fault
    if digest != _hash(weight, bias) or len(classes) != len(weight):
        raise _damaged(file)
    return LinearClassifier(weight, bias, classes, readout, size, network, rate, epoch, multi_label)


def _damaged(file: Path) -> UserError:
    return UserError(
        f"the classifier {file} is damaged; delete it and train another with the task linear"
    )


def _hash(*tensors: Tensor) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()
