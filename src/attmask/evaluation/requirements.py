"""Checks before any image is read: sizes, blocks, sources, heads; the folder of a result."""

import hashlib
import json
from pathlib import Path
from typing import Any

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.segmentation.segmenter import TrainedSegmenter
from attmask.models.backbone import patches_along


def check_crop(
    model: FrozenModel, image_size: int | None, readout: Embedding | None = None
) -> None:
    """Raise an error for crops that are not whole patches, and for blocks that do not exist."""
    patches_along(image_size or model.image_size, model.backbone.patch_size)
    if readout is not None:
        readout.width(model.backbone)


def check_images(*sources: Source) -> None:
    """Raise an error for sources without images."""
    for source in sources:
        if len(source) == 0:
            raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")


def classifier_of(model: FrozenModel, file: Path | None = None) -> LinearClassifier:
    """The classifier in a file that was trained on this network, or else the network's own."""
    if file is not None:
        classifier = LinearClassifier.load(file, network=model.digest)
    elif model.classifier is not None:
        classifier = model.classifier
    else:
        raise UserError(
            f"{model.name} has no classifier; train one with `attmask finetune`, or give the file "
            "that the task linear writes"
        )
    check_crop(model, classifier.image_size, classifier.readout)
    width = classifier.readout.width(model.backbone)
    if classifier.weight.shape[1] != width:
        raise UserError(
            f"the classifier of {model.name} was trained on width {classifier.weight.shape[1]}, "
            f"but its features have width {width}; use the classifier of this network"
        )
    return classifier


def segmenter_of(model: FrozenModel) -> TrainedSegmenter:
    """The segmenter that the network was trained with."""
    if model.segmenter is None:
        raise UserError(
            f"{model.name} has no segmenter; train one with `attmask finetune RUN DATA --recipe "
            "segment-own`"
        )
    return model.segmenter


def detector_of(model: FrozenModel) -> TrainedDetector:
    """The detector that the network was trained with."""
    if model.detector is None:
        raise UserError(
            f"{model.name} has no detector; train one with `attmask finetune RUN DATA --recipe "
            "detect-own`"
        )
    return model.detector


def result_folder(extractor: FeatureExtractor, task: str, model: FrozenModel, key: Any) -> Path:
    """The folder of the files of a result; `key` is what the result depends on, as JSON."""
    name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
    return extractor.cache / "plots" / f"{task}-{model.digest[:16]}-{name}"
