"""Names of one code base as those of another, by patterns."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from attmask.errors import UserError
from attmask.models.weights_file import name_of


class Renamed(NamedTuple):
    """Tensors in other names, and the names of those that were left out."""

    tensors: dict[str, Tensor]
    left_out: tuple[str, ...]


def renamed(
    path: Path,
    tensors: Mapping[str, Tensor],
    patterns: Sequence[tuple[str, str]],
    *,
    prefix: str,
    left_out: str,
) -> Renamed:
    """Apply all patterns to names without their prefix; what matches `left_out` is no backbone."""
    named: dict[str, Tensor] = {}
    others: list[str] = []
    for name, tensor in tensors.items():
        plain = name.removeprefix(prefix)
        if re.match(left_out, plain):
            others.append(name)
            continue
        for pattern, replacement in patterns:
            plain = re.sub(pattern, replacement, plain)
        if plain in named:
            raise UserError(f"{path} holds {name_of(plain)} twice; save one network alone")
        named[plain] = tensor
    return Renamed(named, tuple(others))
