"""One vocabulary of splits: which names mean train, val and test, in any kind of store."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from attmask.errors import UserError
from attmask.wording import agree, counted

log = logging.getLogger(__name__)

TRAIN, VAL, TEST = "train", "val", "test"
SPLITS = (TRAIN, VAL, TEST)
WORDS = {
    TRAIN: ("train", "training"),
    VAL: ("val", "valid", "validation", "dev", "eval"),
    TEST: ("test", "testing"),
}
"""The names of each split, in any case."""

SIDE_FOLDERS = frozenset({"masks", "trimaps"})
"""Folders beside the splits that may hold other pictures, such as masks."""

_MEANING = {word: split for split, words in WORDS.items() for word in words}
_WORD = "|".join(sorted(_MEANING, key=len, reverse=True))
_NAME = re.compile(rf"({_WORD})([-_ ]?(set|data|images|\d{{4}}))?", re.IGNORECASE)
_BEGINNING = re.compile(rf"({_WORD})(?![a-z])", re.IGNORECASE)

Held = TypeVar("Held")


def split_of(name: str) -> str | None:
    """The split of a name, for instance of `Validation`, `train2017` or `test_images`."""
    found = _NAME.fullmatch(name.strip())
    return _MEANING[found[1].lower()] if found else None


def splits_among(
    folders: Iterable[str], holds_images: Callable[[str], bool], where: str | Path
) -> dict[str, str] | None:
    """The folder of each split, or None where the folders are classes.

    A folder called train is a class (of vehicles, say) if other folders lie beside it and no
    split is held out. The same holds for val and test if there is no train.
    """
    folders = sorted(folders)
    named = {folder: split for folder in folders if (split := split_of(folder)) is not None}
    if not named:
        return None
    others = [f for f in folders if f not in named and f.lower() not in SIDE_FOLDERS]
    found = _folders_by_split(named, holds_images)
    both = TRAIN in found and len(found) > 1
    if not found or (not both and any(map(holds_images, others))):
        return None
    for split, ours in found.items():
        if len(ours) > 1:
            raise UserError(
                f"{where} has the folders {' and '.join(ours)}, which both mean {split}; "
                f"rename or remove all but one"
            )
    if left_out := [folder for folder in others if both and holds_images(folder)]:
        log.warning(
            "%s: the images in %s are left out: it is neither train, val nor test",
            where,
            ", ".join(left_out),
        )
    return {split: ours[0] for split, ours in found.items()}


def _folders_by_split(
    named: Mapping[str, str], holds_images: Callable[[str], bool]
) -> dict[str, list[str]]:
    """The folders that hold images; an empty train folder is kept, so that an error can name it."""
    found = {}
    for split in SPLITS:
        ours = [folder for folder, meaning in named.items() if meaning == split]
        full = [folder for folder in ours if holds_images(folder)]
        if full or (ours and split == TRAIN):
            found[split] = full or ours[:1]
    return found


def by_prefix(names: Sequence[str]) -> dict[str, list[str]]:
    """`train-0.tar` beside `val-0.tar` are two splits; without such names all are to train on."""
    found: dict[str, list[str]] = {}
    for name in names:
        if begins := _BEGINNING.match(name):
            found.setdefault(_MEANING[begins[1].lower()], []).append(name)
    left_out = len(names) - sum(map(len, found.values()))
    if TRAIN not in found and left_out:
        return {TRAIN: list(names)}
    if left_out:
        are = agree(left_out, "is", "are")
        told = f"{left_out} of {counted(len(names), 'file')} {are} neither train, val nor test"
        log.info("%s: left out", told)
    return in_order(found)


def in_order(found: Mapping[str, Held]) -> dict[str, Held]:
    """The splits that there are: train, val, test."""
    return {split: found[split] for split in SPLITS if split in found}


def with_train(found: Mapping[str, Held], where: str | Path) -> dict[str, Held]:
    """The splits; without train, val (or else test) replaces it, with a warning."""
    if TRAIN in found or not found:
        return in_order(found)
    first, *rest = in_order(found)
    log.warning("%s has no train split: the images of %s are used as train", where, first)
    return {TRAIN: found[first], **{split: found[split] for split in rest}}
