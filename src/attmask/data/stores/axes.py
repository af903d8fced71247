"""Find the axis of the channels in an array of pictures: the first of a picture, or the last."""

import logging
from collections.abc import Sequence
from pathlib import Path

from attmask.errors import UserError

log = logging.getLogger(__name__)

FEW_CHANNELS = 4
"""The usual numbers of channels: grey, colour, colour with transparency."""


def channels_first(file: Path, shape: Sequence[int], wanted: int | None) -> bool:
    """Whether pictures of this shape are C H W, not H W C; `wanted` channels decide if they can.

    Else the channels are at most four, or the reading wins that has fewer channels than rows and
    columns, or pictures that are more nearly square. An undecided shape is an error.
    """
    first, middle, last = shape
    if wanted is not None and (first == wanted) != (last == wanted):
        return first == wanted
    if min(first, last) <= FEW_CHANNELS:
        return first <= FEW_CHANNELS < min(middle, last)
    if first == last:
        log.warning(
            "%s: pictures of shape %s are read as H W C; save them as H W C if they are C H W",
            *(file, _shape(shape)),
        )
        return False
    fewer = _prefers(first < min(middle, last), last < min(first, middle))
    squarer = _prefers(
        _longer(middle, last) < _longer(first, middle),
        _longer(first, middle) < _longer(middle, last),
    )
    if fewer + squarer == 0:
        raise UserError(
            f"{file} holds pictures of shape {_shape(shape)}, which may be {first} channels of "
            f"{middle} × {last} pixels or {last} channels of {first} × {middle}; set "
            f"data.channels (of a task: channels) to {first} or {last}"
        )
    return fewer + squarer > 0


def _prefers(first: bool, last: bool) -> int:
    """1 for channels first, -1 for channels last, 0 if undecided."""
    return int(first) - int(last)


def _longer(height: int, width: int) -> float:
    """How much longer the long side of a picture is than the short one."""
    return max(height, width) / min(height, width)


def _shape(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape))
