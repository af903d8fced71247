"""What the name of a network says: where it is, which network of a run, and options.

runs/mine@student   weights.pth@positions=size,heads=6   timm:vit_small_patch16_224.dino
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from attmask.errors import UserError
from attmask.models.positions import Resize

Which = Literal["teacher", "student", "untrained", "best", "last"]

TIMM = "timm:"


def split_which(text: str) -> tuple[Path, Which | None]:
    """The path, and the network of the run that is named after the @, if one is."""
    before, at, after = text.rpartition("@")
    if at and not Path(text).exists():
        known: dict[str, Which] = {name: name for name in get_args(Which)}
        if after not in known:
            raise UserError(
                f"{text} names an unknown network {after!r}; use @teacher, @student or @untrained, "
                "@best of a guarded or a fine-tuning run, or @last of a fine-tuning run"
            )
        return Path(before), known[after]
    return Path(text), None


@dataclass(frozen=True)
class Options:
    """Options for weights from elsewhere, for what their file may not state."""

    positions: Resize | None = None
    heads: int | None = None
    partial: bool = False


def split_options(text: str) -> tuple[str, Options | None]:
    """The name before the @ and the options after it, if there are any."""
    before, at, after = text.rpartition("@")
    if not at or "=" not in after or Path(text).exists():
        return text, None
    options, ways = Options(), get_args(Resize)
    for option in after.split(","):
        key, _, value = option.partition("=")
        if key == "positions" and value in ways:
            options = replace(options, positions=ways[ways.index(value)])
        elif key == "heads" and value.isdecimal() and int(value):
            options = replace(options, heads=int(value))
        elif key == "partial" and value in ("true", "false"):
            options = replace(options, partial=value == "true")
        else:
            raise UserError(
                f"{option} in {text} is not an option of a weights file; use "
                f"{', '.join(f'positions={way}' for way in ways)}, heads=N or partial=true"
            )
    return before, options


def names_of(named: Sequence[str | Path]) -> list[str]:
    """Short distinct names: the last part of each path, or the whole path if those clash."""
    short = [Path(str(name)).name or str(name) for name in named]
    if len(set(short)) == len(set(map(str, named))):
        return short
    return [str(name) for name in named]
