"""Checkpoints: written atomically, verified by hash when they are loaded.

RUN/checkpoints/damaged-step-00001500/                 put aside when a run was resumed without it
RUN/checkpoints/step-00001200/
    weights.safetensors  optimizer.safetensors  ...    tensors by name
    state.json  state.sha256                           step, hashes of the files, and more

In place of optimizer.safetensors, a run whose optimizer is sharded has a file of each process
(shard-00001-..., see `sharded`); any run can resume from either.
"""

import itertools
import json
import logging
import re
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from attmask import atomic
from attmask.checkpoint_files import (
    STATE,
    STATE_HASH,
    DamagedCheckpointError,
    MissingCheckpointError,
    groups_of,
    hash_bytes,
    hash_of,
    read_group,
    read_state,
    reading,
    verify_file,
    write_tensors,
)
from attmask.errors import UserError
from attmask.settings import Config, setting

if TYPE_CHECKING:
    from attmask.sharded import Shards

log = logging.getLogger(__name__)

WEIGHTS = "weights"
OPTIMIZER = "optimizer"
BEST = "best"
"""The folder of the best network of a run, beside that of its checkpoints."""


class CheckpointConfig(Config):
    """When to save, and what to keep."""

    every_minutes: float = setting(10.0, "minutes between checkpoints", operational=True, ge=0)
    keep: int = setting(2, "how many of the newest checkpoints to keep", operational=True, ge=1)
    keep_every_epochs: int | None = setting(
        None,
        "also save and keep the checkpoint at the end of every so many epochs (null = none)",
        operational=True,
        ge=1,
    )


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is needed to resume a run from a step."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    info: Mapping[str, Any]
    path: Path | None = None
    """Where it was read from."""
    is_kept: bool = False
    """Whether it is never removed."""


def save(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    keep: int,
    shards: "Shards | None" = None,
    writer: str | None = None,
) -> Path:
    """Write a checkpoint below `folder` and remove all but the newest `keep`.

    Those that were written to be kept are never removed. Where the run is sharded, every process
    calls it with its `shards` and the `writer` of the main one (see `atomic.folder`), whose
    `checkpoint` holds the rest.
    """
    final = folder / f"step-{checkpoint.step:08d}"
    try:
        # Another process may have made this step meanwhile: its checkpoint stays if it is whole.
        with atomic.folder(final, writer=writer, replaces=_is_damaged) as part:
            hashes = {} if shards is None else _write_shards(part, shards)
            if shards is None or shards.is_main:
                _write(part, checkpoint, hashes)
    except OSError as fault:
        before = _newest_whole(folder)
        kept = f"{before.name} is whole" if before else "there is no earlier one"
        raise UserError(
            f"cannot write the checkpoint {final}: {fault.strerror or fault}; {kept}; "
            f"{atomic.what_to_do(fault)}"
        ) from fault
    if shards is None or shards.is_main:
        _remove_older(folder, final, keep)
    return final


def _remove_older(folder: Path, final: Path, keep: int) -> None:
    """Remove what is not kept; the run goes on if that fails."""
    older = [other for other in _folders(folder) if other < final]
    for other in older[: max(0, len(older) + 1 - keep)]:
        if _is_kept(other):
            continue
        try:
            atomic.remove_folder(other)
        except OSError as fault:
            log.warning(
                "cannot remove the older checkpoint %s: %s; the run goes on, remove it by hand",
                other,
                fault.strerror or fault,
            )


def _is_kept(path: Path) -> bool:
    """Whether a checkpoint says that it is kept; if it cannot be read, it says nothing."""
    try:
        return read_state(path).get("kept") is True
    except (OSError, UserError):
        return False


def _write_shards(folder: Path, shards: "Shards") -> dict[str, str]:
    """Write this process's shards; the hashes of the files of all processes."""
    own: dict[str, str] = {}
    for path in shards.write(folder):
        atomic.flush(path)  # on another machine the main process cannot
        own[path.name] = hash_of(path)
    of_all = shards.gather(own)
    return {name: digest for of_one in of_all for name, digest in of_one.items()}


def _write(folder: Path, checkpoint: Checkpoint, hashes_of_shards: Mapping[str, str]) -> None:
    hashes = dict(hashes_of_shards)
    for name, tensors in checkpoint.tensors.items():
        path = folder / f"{name}.safetensors"
        write_tensors(path, tensors)
        hashes[path.name] = hash_of(path)
    state = {
        "step": checkpoint.step,
        "files": hashes,
        "shards": {OPTIMIZER: sorted(hashes_of_shards)} if hashes_of_shards else {},
        "info": dict(checkpoint.info),
        "kept": checkpoint.is_kept,
    }
    data = json.dumps(state, indent=1).encode()
    (folder / STATE).write_bytes(data)
    (folder / STATE_HASH).write_text(hash_bytes(data))


def load(folder: Path, *, only: Collection[str] | None = None) -> Checkpoint:
    """Read a checkpoint and verify its files by their hashes.

    `only` names the groups of tensors to read, for instance `weights`; the files of the others are
    neither opened nor verified.
    """
    with reading(folder):
        state = read_state(folder)
        tensors = {
            name: read_group(folder, files, in_shards=name in state.get("shards", {}))
            for name, files in groups_of(state).items()
            if only is None or name in only
        }
    return Checkpoint(state["step"], tensors, state["info"], folder)


def verify(folder: Path) -> None:
    """Raise an error, as `load` does, if a checkpoint is not whole; nothing is kept in memory."""
    with reading(folder):
        for name, digest in read_state(folder)["files"].items():
            verify_file(folder / name, digest)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint below `folder`, if there is one."""
    found = _folders(folder)
    return found[-1] if found else None


def count(folder: Path) -> int:
    """The number of checkpoints below `folder`, whole or damaged."""
    return len(_folders(folder))


def step_of(path: Path) -> int:
    """The step in the name of a checkpoint."""
    return int(path.name.partition("-")[2])


def find_newest(folder: Path) -> Path | None:
    """The path of the newest intact checkpoint, as `load_newest` finds it, in little memory."""
    damaged: list[tuple[Path, str]] = []
    for path in reversed(_folders(folder)):
        try:
            verify(path)
        except DamagedCheckpointError as fault:
            damaged.append((path, fault.why))
        else:
            _tell_damaged(damaged, path)
            return path
    _tell_damaged(damaged, None)
    if damaged:
        raise _none_whole(folder)
    return None


def load_newest(folder: Path, *, only: Collection[str] | None = None) -> Checkpoint | None:
    """The newest intact checkpoint; damaged ones are logged and skipped.

    A run in training removes its older checkpoints, perhaps the very one that is being read: as
    long as the folders change, they are listed again. `only` is as in `load`.
    """
    for attempt in range(_LOOKS):
        found = _versions(folder)
        loaded, damaged = _first_whole(sorted(found, reverse=True), only)
        missed = not found and attempt < _EMPTY_LOOKS and _may_miss(folder)
        if loaded is None and (missed or found != _versions(folder)):
            time.sleep(min(0.02 * attempt, 1.0))
            continue
        _tell_damaged(damaged, None if loaded is None else loaded.path)
        if loaded is None and found:
            raise _none_whole(folder)
        return loaded
    raise UserError(f"the checkpoints in {folder} change while they are read; try again later")


def put_damaged_aside(folder: Path, *, newer_than: int) -> list[Path]:
    """Rename damaged checkpoints of later steps, so that they are neither met again nor lost."""
    aside: list[Path] = []
    for path in _folders(folder):
        if step_of(path) > newer_than and _is_damaged(path):
            names = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
            places = (folder / f"damaged-{path.name}{end}" for end in names)
            place = next(place for place in places if not place.exists())
            path.rename(place)
            aside.append(place)
    if aside:
        atomic.flush(folder)
    return aside


def _tell_damaged(damaged: Sequence[tuple[Path, str]], used: Path | None) -> None:
    for path, why in damaged:
        log.warning("the checkpoint %s is damaged: %s", path, why)
    if damaged and used is not None:
        log.warning("%s is used in its place", used)


def _none_whole(folder: Path) -> UserError:
    return UserError(
        f"no checkpoint in {folder} is whole; put a copy of one there, or start again with "
        "another --out"
    )


def _may_miss(folder: Path) -> bool:
    """Whether an empty listing may be wrong: it can miss a folder that is being renamed."""
    return atomic.is_being_written(folder) or bool(_folders(folder))


def _first_whole(
    paths: Sequence[Path], only: Collection[str] | None
) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    """The first checkpoint that can be loaded, and what is wrong with those before it.

    One that cannot be read for now is an error: passing over it would lose what was trained since
    the one before.
    """
    damaged: list[tuple[Path, str]] = []
    for path in paths:
        try:
            return load(path, only=only), damaged
        except DamagedCheckpointError as fault:
            damaged.append((path, fault.why))
        except MissingCheckpointError:
            continue
    return None, damaged


_EMPTY_LOOKS = 5
_LOOKS = 100
"""How often `load_newest` lists the folder again before it gives up."""


def _folders(folder: Path) -> list[Path]:
    """All checkpoints, also those that have lost their files."""
    found = (p for p in folder.glob("step-*") if re.fullmatch(r"step-\d+", p.name))
    return sorted(path for path in found if path.is_dir())


def _versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """The existing checkpoints, each with inode and time, which identify its version."""
    found = {}
    for path in _folders(folder):
        with suppress(FileNotFoundError):
            about = path.stat()
            found[path] = about.st_ino, about.st_mtime_ns
    return found


def _newest_whole(folder: Path) -> Path | None:
    return next((path for path in reversed(_folders(folder)) if _is_whole(path)), None)


def _is_whole(path: Path) -> bool:
    try:
        verify(path)
    except UserError:
        return False
    return True


def _is_damaged(path: Path) -> bool:
    try:
        verify(path)
    except DamagedCheckpointError:
        return True
    except UserError:
        return False
    return False
