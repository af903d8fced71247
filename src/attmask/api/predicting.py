"""Predictions of fine-tuned networks as functions: classes, masks, objects."""

from pathlib import Path
from typing import Literal

from attmask import distributed
from attmask.agreement import together
from attmask.api.evaluating import cache_of
from attmask.data.sources import images_path
from attmask.evaluation.detection.writing import write_detections
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.predictions import Choice, Predictions, pictures_of
from attmask.evaluation.requirements import (
    classifier_of,
    detector_of,
    segmenter_of,
)
from attmask.evaluation.segmentation.writing import write_masks
from attmask.evaluation.showing import Showing
from attmask.evaluation.whole_images import WholeImages, Written, check_folder
from attmask.hardware import Precision, choose_device, default_workers


def predict(
    checkpoint: str | Path,
    images: str | Path,
    *,
    classifier: str | Path | None = None,
    split: Literal["train", "val", "test"] | None = None,
    top: int | None = None,
    threshold: float | None = None,
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    batch_size: int = 64,
    workers: int | None = None,
) -> Predictions:
    """Classify images with a fine-tuned network; iterate over the result for one record per image.

    `images` is a picture or any images that `pretrain` reads, `split` one split of them (default:
    all). A record has the `top` most probable classes (default: 1); of a multi-label classifier it
    has all classes from the probability `threshold` on (default: 0.5). `classifier` is a file that
    the task `linear` wrote, for a network that was not fine-tuned.
    """
    model = load_model(checkpoint)
    known = classifier_of(model, None if classifier is None else Path(classifier))
    chosen_device = choose_device(device)
    own_device = distributed.own_device(chosen_device)
    return Predictions(
        model,
        known,
        pictures_of(images_path(images), split, model.data.channels),
        Choice.of(known, top, threshold),
        FeatureExtractor(
            device=own_device,
            precision=Precision.choose(precision, own_device),
            cache=cache_of(model, None),  # predictions are not kept
            batch_size=batch_size,
            workers=default_workers() if workers is None else workers,
        ),
        chosen_device,
    )


def segment(
    checkpoint: str | Path,
    images: str | Path,
    *,
    out: str | Path,
    split: Literal["train", "val", "test"] | None = None,
    overlays: bool = True,
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    workers: int | None = None,
) -> Written:
    """Write the class of each pixel of images, with a network that was trained to segment.

    `out` gets a mask for each image, whose values are those of the masks that were trained on, a
    table of the classes and, with `overlays`, pictures to look at. `images` is a picture or any
    images that `pretrain` reads. With several processes, all of them call this.
    """
    folder = Path(out)
    check_folder(folder, images_path(images))
    chosen_device = choose_device(device)
    with distributed.processes(chosen_device):
        with together():
            model = load_model(checkpoint)
            segmenter = segmenter_of(model)
            shown = _whole_images(model, images, split, segmenter.showing, overlays, workers)
        own_device = distributed.own_device(chosen_device)
        segmenter.network.to(own_device)
        autocast = Precision.choose(precision, own_device).autocast
        return write_masks(segmenter, shown, folder, autocast)


def detect(
    checkpoint: str | Path,
    images: str | Path,
    *,
    out: str | Path,
    threshold: float | None = None,
    split: Literal["train", "val", "test"] | None = None,
    overlays: bool = True,
    device: str = "auto",
    precision: Literal["auto", "bf16", "fp16", "fp32"] = "fp32",
    workers: int | None = None,
) -> Written:
    """Write the objects in images, with a network that was trained to detect.

    `out` gets detections.json, a data set in COCO's format whose annotations have a score, and,
    with `overlays`, pictures to look at. Detections have a score of at least `threshold`; without
    one, all are written (from 0.05 on, as the network gives them) and those from 0.5 on are drawn.
    """
    folder = Path(out)
    check_folder(folder, images_path(images))
    chosen_device = choose_device(device)
    with distributed.processes(chosen_device):
        with together():
            model = load_model(checkpoint)
            detector = detector_of(model)
            shown = _whole_images(model, images, split, detector.showing, overlays, workers)
        own_device = distributed.own_device(chosen_device)
        detector.network.to(own_device)
        autocast = Precision.choose(precision, own_device).autocast
        return write_detections(detector, shown, folder, autocast, threshold=threshold)


def _whole_images(
    model: FrozenModel,
    images: str | Path,
    split: str | None,
    showing: Showing,
    overlays: bool,
    workers: int | None,
) -> WholeImages:
    sources = pictures_of(images_path(images), split, model.data.channels)
    return WholeImages(
        sources, showing, default_workers() if workers is None else workers, overlays
    )
