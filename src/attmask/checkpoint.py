"""Checkpoints that are whole or not there: written beside, flushed, renamed, verified by hash.

RUN/checkpoints/step-00001200/
    weights.safetensors  optimizer.safetensors  ...    tensors by name
    state.json  state.sha256                           step, hashes of the files, and more
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

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
    """Everything a run needs to go on from a step."""

    step: int
    tensors: Mapping[str, Mapping[str, Tensor]]
    info: Mapping[str, Any]


def save(folder: Path, checkpoint: Checkpoint, *, keep: int) -> Path:
    """Write a checkpoint below `folder` and remove all but the newest `keep`."""
    final = folder / f"step-{checkpoint.step:08d}"
    part = folder / f".part-{checkpoint.step:08d}"
    try:
        for left in folder.glob(".part-*"):  # of a process that was killed while it wrote
            shutil.rmtree(left, ignore_errors=True)
        part.mkdir(parents=True)
        hashes = {}
        for name, tensors in checkpoint.tensors.items():
            data = safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()})
            hashes[f"{name}.safetensors"] = _hash(data)
            _write(part / f"{name}.safetensors", data)
        state = {"step": checkpoint.step, "files": hashes, "info": dict(checkpoint.info)}
        data = json.dumps(state, indent=1).encode()
        _write(part / STATE, data)
        _write(part / STATE_HASH, _hash(data).encode())
        _flush_folder(part)
        shutil.rmtree(final, ignore_errors=True)
        part.rename(final)
        _flush_folder(folder)
    except OSError as fault:
        shutil.rmtree(part, ignore_errors=True)
        before = newest(folder)
        kept = f"{before.name} is whole" if before else "there is none from before"
        raise UserError(
            f"cannot write the checkpoint {final}: {fault.strerror or fault}; {kept}; "
            "make room, then start the same command again"
        ) from fault
    found = _folders(folder)
    here = found.index(final) + 1
    # A newer one was damaged and passed over, or this step would not have been made again.
    for other in (*found[here:], *found[: max(0, here - keep)]):
        shutil.rmtree(other, ignore_errors=True)
    return final


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint and refuse one whose files are not what was written."""
    try:
        digest = (folder / STATE_HASH).read_bytes().decode("ascii", errors="replace")
        state = json.loads(_read(folder / STATE, digest))
        tensors = {
            file.removesuffix(".safetensors"): safetensors.torch.load(_read(folder / file, digest))
            for file, digest in state["files"].items()
        }
    except OSError as fault:
        raise UserError(
            f"{folder} is not a whole checkpoint ({fault}); delete it and start again"
        ) from fault
    return Checkpoint(state["step"], tensors, state["info"])


def newest(folder: Path) -> Path | None:
    """The newest checkpoint below `folder`, if there is one."""
    found = _folders(folder)
    return found[-1] if found else None


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is undamaged; a damaged one is named and passed over."""
    found = _folders(folder)
    for path in reversed(found):
        try:
            return load(path)
        except UserError as fault:
            log.warning("%s", fault)
    if found:
        raise UserError(
            f"no checkpoint in {folder} is whole; put one back, or delete the folder to begin anew"
        )
    return None


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*") if (p / STATE).is_file())


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read(path: Path, digest: str) -> bytes:
    """The bytes of a file, if they are the ones that were written."""
    data = path.read_bytes()
    if _hash(data) != digest:
        raise UserError(f"{path} is damaged; delete {path.parent} and start again")
    return data


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    """A rename is only safe from a power cut once the folder itself is on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
