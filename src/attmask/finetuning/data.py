"""The images of a fine-tuning: to train on, to select the best network by, to measure it on."""

import logging
from dataclasses import dataclass

from attmask import distributed
from attmask.data.images import Images
from attmask.data.joined import join
from attmask.data.source import Source
from attmask.data.stores.splits import TEST, TRAIN, VAL
from attmask.data.subset import split_holdout
from attmask.errors import UserError
from attmask.finetuning.config import LabelsConfig, SelectionConfig
from attmask.finetuning.labels import Classes, find_classes
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
    splits = images.splits
    for name in selection.train:
        if name not in splits:
            raise UserError(
                f"there is no split {name} in {images.train.root}, only {', '.join(splits)}; set "
                f"selection.train=[{TRAIN}]"
            )
    train = join([splits[name] for name in selection.train])
    held_out = {name: s for name, s in splits.items() if name not in selection.train}
    classes = find_classes(train, held_out, labels)
    if selection.split != "auto" and selection.split not in held_out:
        raise UserError(
            f"there is no split {selection.split} in {images.train.root}, only "
            f"{', '.join(splits)}; choose another selection.split"
        )
    wanted: str = VAL if selection.split == "auto" else selection.split
    if wanted in held_out:
        selecting, chosen = held_out[wanted], wanted
    else:
        train, selecting = _part_of_train(train, selection.holdout)
        chosen = f"{counted(len(selecting), 'image')} of {TRAIN}"
    if wanted == VAL and TEST in held_out:
        return Divided(train, selecting, chosen, held_out[TEST], TEST, classes)
    return Divided(train, selecting, chosen, selecting, chosen, classes)


def _part_of_train(train: Source, share: float) -> tuple[Source, Source]:
    left, selecting = split_holdout(train, share)
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
