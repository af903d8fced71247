"""Checkpoints: written atomically, verified by hash when they are loaded.

RUN/checkpoints/step-00001200/
    weights.safetensors  optimizer.safetensors  ...    tensors by name
    state.json  state.sha256                           step, hashes of the files, and more
"""

import hashlib
import json
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from attmask import atomic
from attmask.errors import UserError
from attmask.settings import Config, setting

log = logging.getLogger(__name__)

STATE = "state.json"
STATE_HASH = "state.sha256"


class CheckpointConfig(Config):
    """When to save, and what to keep."""

    every_minutes: float = setting(10.0, "minutes between checkpoints", operational=True, ge=0)
    keep: int = setting(2, "how many of the newest checkpoints to keep", operational=True, ge=1)


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is needed to resume a run from a step."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    info: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write a checkpoint below `folder` and remove all but the newest `keep`."""
    final = folder / f"step-{checkpoint.step:08d}"
    try:
        # Another process may have made this step meanwhile: its checkpoint stays if it is whole.
        with atomic.folder(final, replaces=_is_damaged) as part:
            _write(part, checkpoint)
    except OSError as fault:
        before = newest(folder)
        kept = f"{before.name} is whole" if before else "there is no earlier one"
        raise UserError(
            f"cannot write the checkpoint {final}: {fault.strerror or fault}; {kept}; "
            "make room, then start the same command again"
        ) from fault
    found = _folders(folder)
    older = [other for other in found if other < final]
    # A newer one was damaged and passed over, or another process trains in this folder too.
    newer = [other for other in found if other > final and _is_damaged(other)]
    for other in (*newer, *older[: max(0, len(older) + 1 - keep)]):
        atomic.remove_folder(other)
    return final


def _write(folder: Path, checkpoint: Checkpoint) -> None:
    hashes = {}
    for name, tensors in checkpoint.tensors.items():
        data = safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()})
        hashes[f"{name}.safetensors"] = _hash(data)
        (folder / f"{name}.safetensors").write_bytes(data)
    state = {"step": checkpoint.step, "files": hashes, "info": dict(checkpoint.info)}
    data = json.dumps(state, indent=1).encode()
    (folder / STATE).write_bytes(data)
    (folder / STATE_HASH).write_text(_hash(data))


def load(folder: Path, *, only: Collection[str] | None = None) -> Checkpoint:
    """Read a checkpoint and verify its files by their hashes.

    `only` names the groups of tensors to read, for instance `weights`; the files of the others are
    neither opened nor verified.
    """
    try:
        digest = (folder / STATE_HASH).read_bytes().decode("ascii", errors="replace")
        state = json.loads(_read(folder / STATE, digest))
        hashes = {f.removesuffix(".safetensors"): hashed for f, hashed in state["files"].items()}
        tensors = {
            name: safetensors.torch.load(_read(folder / f"{name}.safetensors", hashed))
            for name, hashed in hashes.items()
            if only is None or name in only
        }
    except FileNotFoundError as fault:
        if not folder.is_dir():
            raise UserError(
                f"there is no checkpoint {folder}; a run in training removes its older ones "
                "(checkpoint.keep): give the folder of the run for its newest"
            ) from fault
        raise UserError(
            f"{folder} is not a whole checkpoint ({fault}); put the file back, or use another "
            "checkpoint"
        ) from fault
    except OSError as fault:
        raise UnreadableCheckpointError(
            f"cannot read the checkpoint {folder}: {fault.strerror or fault}; check the disk and "
            "the permissions of its files"
        ) from fault
    return Checkpoint(state["step"], tensors, state["info"])


class UnreadableCheckpointError(UserError):
    """Reading failed on the disk; the checkpoint itself may be intact."""


def newest(folder: Path) -> Path | None:
    """The newest checkpoint below `folder`, if there is one."""
    found = _folders(folder)
    return found[-1] if found else None


def load_newest(folder: Path, *, only: Collection[str] | None = None) -> Checkpoint | None:
    """The newest intact checkpoint; damaged ones are logged and skipped.

    A run in training removes its older checkpoints, perhaps the very one that is being read: as
    long as the folders change, they are listed again. `only` is as in `load`.
    """
    for attempt in range(_LOOKS):
        found = _versions(folder)
        loaded, damaged = _first_whole(sorted(found, reverse=True), only)
        if loaded is None and (found != _versions(folder) or _is_just_written(folder, attempt)):
            time.sleep(min(0.02 * attempt, 1.0))
            continue
        for line in damaged:
            log.warning("%s", line)
        if loaded is None and found:
            raise UserError(
                f"no checkpoint in {folder} is whole; put a copy of one there, or start again "
                "with another --out"
            )
        return loaded
    raise UserError(f"the checkpoints in {folder} change while they are read; try again later")


def _is_just_written(folder: Path, attempt: int) -> bool:
    """Whether an empty listing may be wrong: it can miss a folder that is being renamed."""
    return attempt < 5 and not _folders(folder) and atomic.is_being_written(folder)


def _first_whole(
    paths: Sequence[Path], only: Collection[str] | None
) -> tuple[Checkpoint | None, list[str]]:
    """The first checkpoint that can be loaded, and the errors of those before it."""
    damaged: list[str] = []
    for path in paths:
        try:
            return load(path, only=only), damaged
        except UnreadableCheckpointError:
            raise  # passing over it would lose what was trained since the one before
        except UserError as fault:
            if path.is_dir():  # or a run in training has removed it meanwhile
                damaged.append(str(fault))
    return None, damaged


_LOOKS = 100
"""How often `load_newest` lists the folder again before it gives up."""


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*") if (p / STATE).is_file())


def _versions(folder: Path) -> dict[Path, tuple[int, int]]:
    """The existing checkpoints, each with inode and time, which identify its version."""
    found = {}
    for path in _folders(folder):
        with suppress(FileNotFoundError):
            about = (path / STATE).stat()
            found[path] = about.st_ino, about.st_mtime_ns
    return found


def _is_damaged(path: Path) -> bool:
    try:
        load(path)
    except UnreadableCheckpointError:
        return False
    except UserError:
        return True
    return False


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, digest: str) -> bytes:
    """Read a file and check its hash."""
    data = path.read_bytes()
    if _hash(data) != digest:
        raise UserError(f"{path} is damaged; delete {path.parent} and start again")
    return data
