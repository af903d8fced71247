"""Which files are to train on and which to validate on, where names say so."""

import logging
import re
from collections.abc import Sequence

log = logging.getLogger(__name__)

TRAIN = ("train", "training")
HELD_OUT = ("validation", "val", "valid", "test")
"""In the order of preference: a test split serves only where there is no other."""


def by_prefix(names: Sequence[str]) -> dict[str, list[str]]:
    """`train-0.tar` beside `val-0.tar` are two parts; without such names all are to train on."""
    train = _beginning_with(TRAIN, names)
    if not train:
        return {"train": list(names)}
    found = {"train": train}
    held_out = (_beginning_with((word,), names) for word in HELD_OUT)
    if val := next(filter(None, held_out), None):
        found["val"] = val
    left_out = len(names) - sum(map(len, found.values()))
    if left_out:
        log.info("%d of %d files are neither train nor val: left out", left_out, len(names))
    return found


def _beginning_with(words: Sequence[str], names: Sequence[str]) -> list[str]:
    start = re.compile(rf"({'|'.join(words)})(?![a-z])", re.IGNORECASE)
    return [name for name in names if start.match(name)]
