"""Checkpoints that are whole or not there: written beside, flushed, renamed, verified by hash.

RUN/checkpoints/step-00001200/
    weights.safetensors  optimizer.safetensors  ...    tensors by name
    state.json                                         step, hashes of the files, and more
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
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        hashes = {}
        for name, tensors in checkpoint.tensors.items():
            data = safetensors.torch.save({k: t.contiguous() for k, t in tensors.items()})
            hashes[f"{name}.safetensors"] = hashlib.sha256(data).hexdigest()
            _write(part / f"{name}.safetensors", data)
        state = {"step": checkpoint.step, "files": hashes, "info": dict(checkpoint.info)}
        _write(part / STATE, json.dumps(state, indent=1).encode())
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
    for old in _folders(folder)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint and refuse one whose files are not what was written."""
    try:
        state = json.loads((folder / STATE).read_bytes())
        tensors = {}
        for file, digest in state["files"].items():
            data = (folder / file).read_bytes()
            if hashlib.sha256(data).hexdigest() != digest:
                raise UserError(f"{folder / file} is damaged; delete {folder} and start again")
            tensors[file.removesuffix(".safetensors")] = safetensors.torch.load(data)
    except (OSError, KeyError, json.JSONDecodeError) as fault:
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
    for path in reversed(_folders(folder)):
        try:
            return load(path)
        except UserError as fault:
            log.warning("%s; going on from the one before", fault)
    return None


def _folders(folder: Path) -> list[Path]:
    return sorted(p for p in folder.glob("step-*") if (p / STATE).is_file())


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
