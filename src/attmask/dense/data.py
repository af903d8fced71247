"""The annotated images of dense prediction: to train on, to select by, to measure on."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from attmask import distributed
from attmask.data.config import DataConfig
from attmask.data.source import Source
from attmask.data.stores.splits import TEST, TRAIN, VAL
from attmask.data.subset import held_out
from attmask.errors import UserError
from attmask.tuning.config import SelectionConfig
from attmask.wording import counted

log = logging.getLogger(__name__)

Self = TypeVar("Self", bound="AnnotatedImages")


@runtime_checkable
class AnnotatedImages(Protocol):
    """Images with what is to be predicted of each."""

    @property
    def source(self) -> Source:
        """The images."""

    def __len__(self) -> int: ...

    def subset(self: Self, indices: Sequence[int] | np.ndarray) -> Self:
        """Some of the images, in the order given."""


AnyImages = TypeVar("AnyImages", bound=AnnotatedImages)


@dataclass(frozen=True, eq=False)
class Divided(Generic[AnyImages]):
    """Images to train on, images that select the best network, and images for the last measure."""

    train: AnyImages
    selecting: AnyImages
    selected_on: str
    """What the selecting images are, for people."""
    final: AnyImages
    measured_on: str
    """What the final images are: those that select, unless there are others."""


def divide(
    splits: Mapping[str, AnyImages],
    selection: SelectionConfig,
    data: DataConfig,
    join: Callable[[Sequence[AnyImages]], AnyImages] | None = None,
) -> Divided[AnyImages]:
    """Divide the images as the settings say; an error where images are lacking.

    `join` makes one of several splits to train on, if that is possible.
    """
    root = splits[TRAIN].source.root
    for name in selection.train:
        if name not in splits:
            raise UserError(
                f"there is no split {name} in {root}, only {', '.join(splits)}; set "
                f"selection.train=[{TRAIN}]"
            )
    train, *more = (splits[name] for name in selection.train)
    if more and join is None:
        raise UserError(
            f"selection.train={list(selection.train)} are several annotation files; join them into "
            f"one, or set selection.train=[{TRAIN}]"
        )
    if more and join is not None:
        train = join([train, *more])
    others = {name: part for name, part in splits.items() if name not in selection.train}
    if selection.split != "auto" and selection.split not in others:
        raise UserError(
            f"there is no split {selection.split} in {root}, only {', '.join(splits)}; choose "
            "another selection.split"
        )
    wanted: str = VAL if selection.split == "auto" else selection.split
    if wanted in others:
        selecting, chosen = others[wanted], wanted
    else:
        train, selecting = _part_of_train(train, selection.holdout)
        chosen = f"{counted(len(selecting), 'image')} of {TRAIN}"
    train = _first_of(train, data)
    if wanted == VAL and TEST in others:
        return Divided(train, selecting, chosen, others[TEST], TEST)
    return Divided(train, selecting, chosen, selecting, chosen)


def _first_of(train: AnyImages, data: DataConfig) -> AnyImages:
    """The images that are trained on: all of them, or the first per cent in file order."""
    if data.per_class is not None:
        raise UserError(
            f"data.per_class={data.per_class} counts images of a class, but here pixels and boxes "
            "have classes; use data.percent"
        )
    if data.percent is None:
        return train
    return train.subset(np.arange(max(1, int(len(train) * data.percent / 100))))


def _part_of_train(train: AnyImages, share: float) -> tuple[AnyImages, AnyImages]:
    is_selecting = held_out(None, len(train), share)
    left, selecting = (train.subset(np.flatnonzero(part)) for part in (~is_selecting, is_selecting))
    if not len(selecting) or not len(left):
        raise UserError(
            f"{train.source.root} has {counted(len(train), 'image')}, of which none is left to "
            "select the best network by; add images, or a split val"
        )
    if distributed.is_main():
        log.info(
            "there are no val images: %s of train are held out to select the best network",
            counted(len(selecting), "image"),
        )
    return left, selecting
