"""The images of a fine-tuning: to train on, to select the best network by, to measure it on."""

import logging
from dataclasses import dataclass

import numpy as np

from attmask import distributed
from attmask.data.images import Images
from attmask.data.joined import join
from attmask.data.source import Source
from attmask.data.stores.splits import TEST, TRAIN, VAL
from attmask.data.subset import held_out
from attmask.errors import UserError
from attmask.finetuning.config import LabelsConfig
from attmask.finetuning.labels import Classes, find_classes, number_alike, rarest
from attmask.tuning.config import SelectionConfig
from attmask.wording import counted

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Divided:
    """Images to train on, images that select the best network, and images for the last measure."""

    train: Source
    selecting: Source
    selected_on: str
    """What the selecting images are, for people."""
    final: Source
    measured_on: str
    """What the final images are: those that select, unless there are others."""
    classes: Classes


def divide(images: Images, selection: SelectionConfig, labels: LabelsConfig) -> Divided:
    """Divide the images as the settings say; an error where labels or images are lacking."""
    splits = number_alike(images.splits)
    for name in selection.train:
        if name not in splits:
            raise UserError(
                f"there is no split {name} in {images.train.root}, only {', '.join(splits)}; set "
                f"selection.train=[{TRAIN}]"
            )
    train = join([splits[name] for name in selection.train])
    others = {name: s for name, s in splits.items() if name not in selection.train}
    classes = find_classes(train, others, labels)
    if selection.split != "auto" and selection.split not in others:
        raise UserError(
            f"there is no split {selection.split} in {images.train.root}, only "
            f"{', '.join(splits)}; choose another selection.split"
        )
    wanted: str = VAL if selection.split == "auto" else selection.split
    if wanted in others:
        selecting, chosen = others[wanted], wanted
    else:
        train, selecting = _part_of_train(train, classes, selection.holdout)
        chosen = f"{counted(len(selecting), 'image')} of {TRAIN}"
    _refuse_without_labels(selecting, chosen, classes)
    if wanted == VAL and TEST in others:
        _refuse_without_labels(others[TEST], TEST, classes)
        return Divided(train, selecting, chosen, others[TEST], TEST, classes)
    return Divided(train, selecting, chosen, selecting, chosen, classes)


def _refuse_without_labels(source: Source, called: str, classes: Classes) -> None:
    """Nothing can be measured on images of which none has a label, which several may have."""
    assert source.labels is not None
    if classes.multi_label and not classes.of(np.asarray(source.labels)).any():
        raise UserError(
            f"none of the images to measure on ({called}) in {source.root} has a label; label "
            "some, or choose other images"
        )


def _part_of_train(train: Source, classes: Classes, share: float) -> tuple[Source, Source]:
    is_selecting = held_out(rarest(classes, train), len(train), share)
    if classes.multi_label and not is_selecting.any():  # every image has a label of its own
        is_selecting = held_out(None, len(train), share)
    left, selecting = (train.subset(np.flatnonzero(part)) for part in (~is_selecting, is_selecting))
    if not len(selecting):
        raise UserError(
            f"{train.root} has one image of each class, so none is left to select the best network "
            "by; add images, or a split val"
        )
    if distributed.is_main():
        log.info(
            "there are no val images: %s of train are held out to select the best network",
            counted(len(selecting), "image"),
        )
    return left, selecting
