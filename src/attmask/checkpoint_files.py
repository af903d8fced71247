"""The files of one checkpoint: tensors, and a state with their hashes."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from attmask.errors import UserError
from attmask.reading import MOST_BYTES, check_regular, read_regular

STATE = "state.json"
STATE_HASH = "state.sha256"


class UnreadableCheckpointError(UserError):
    """Reading failed on the disk; the checkpoint itself may be intact."""


class MissingCheckpointError(UserError):
    """A checkpoint is not there, perhaps because a run in training has removed it."""


class DamagedCheckpointError(UserError):
    """A checkpoint is not as it was written."""

    def __init__(self, line: str, why: str) -> None:
        super().__init__(line)
        self.why = why
        """What is wrong, without advice."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a file without another copy in memory."""
    try:
        safetensors.torch.save_file({k: t.contiguous() for k, t in tensors.items()}, path)
        # safetensors lets only the owner read its files; here as many may as may read the folder.
        path.chmod(path.parent.stat().st_mode & 0o666)
    except SafetensorError as fault:
        if (found := re.search(r"\(os error (\d+)\)", str(fault))) is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number)) from fault


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn errors of reading a checkpoint into one-line UserErrors."""
    try:
        yield
    except FileNotFoundError as fault:
        if not folder.is_dir():
            raise MissingCheckpointError(
                f"there is no checkpoint {folder}; a run in training removes its older ones "
                "(checkpoint.keep): give the folder of the run for its newest"
            ) from fault
        raise DamagedCheckpointError(
            f"{folder} is not a whole checkpoint ({fault}); put the file back, or use another "
            "checkpoint",
            f"{Path(fault.filename or folder).name} is missing",
        ) from fault
    except OSError as fault:
        raise UnreadableCheckpointError(
            f"cannot read the checkpoint {folder}: {fault.strerror or fault}; check the disk and "
            "the permissions of its files"
        ) from fault


def read_state(folder: Path) -> dict[str, Any]:
    """The verified state of a checkpoint; anybody may have written it and its hash."""
    digest = read_regular(folder / STATE_HASH, MOST_BYTES).decode("ascii", errors="replace")
    try:
        state = json.loads(read_verified(folder / STATE, digest, MOST_BYTES))
    except UserError:
        raise
    except (ValueError, RecursionError):
        state = None
    if (missing := _missing(state)) is not None:
        raise DamagedCheckpointError(
            f"{folder / STATE} is not the state of a checkpoint: {missing}; use another checkpoint",
            f"{STATE} is not the state of a checkpoint: {missing}",
        )
    assert isinstance(state, dict)
    return state


def _missing(state: object) -> str | None:
    """What a state lacks, whose hash is right: somebody may have written both."""
    if not isinstance(state, dict):
        return "it is not a JSON object"
    if type(step := state.get("step")) is not int or not 0 <= step < 2**63:
        return "it has no step"
    if not isinstance(state.get("info"), dict):
        return "it has no info"
    files, shards = state.get("files"), state.get("shards", {})
    if not isinstance(files, dict) or not all(isinstance(hash_, str) for hash_ in files.values()):
        return "it has no hashes of files"
    for name in files:
        if re.fullmatch(r"[\w-]+(\.[\w-]+)*\.safetensors", name) is None:
            return f"{name[:60]!r} is not a file of tensors in this folder"
    if not isinstance(shards, dict) or not all(
        isinstance(of_group, list)
        and all(isinstance(name, str) and name in files for name in of_group)
        for of_group in shards.values()
    ):
        return "its shards are not lists of its files"
    return None


def groups_of(state: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The files of each group of tensors, with their hashes."""
    shards: dict[str, list[str]] = state.get("shards", {})
    groups = {name: {file: state["files"][file] for file in of} for name, of in shards.items()}
    for file, digest in state["files"].items():
        if not any(file in of for of in groups.values()):
            groups[file.removesuffix(".safetensors")] = {file: digest}
    return groups


def read_group(folder: Path, files: Mapping[str, str], *, in_shards: bool) -> dict[str, Tensor]:
    """The tensors of a group, whose files are verified."""
    if not in_shards:
        ((name, digest),) = files.items()
        try:
            return safetensors.torch.load(read_verified(folder / name, digest))
        except (SafetensorError, KeyError) as fault:  # of an unknown number format
            raise DamagedCheckpointError(
                f"{folder / name} does not hold tensors; use another checkpoint",
                f"{name} does not hold tensors",
            ) from fault
    from attmask.sharded import read_whole  # imports PyTorch's checkpoints, which takes a second

    for name, digest in files.items():
        verify_file(folder / name, digest)
    return read_whole(folder, files)


def hash_bytes(data: bytes) -> str:
    """The hash of bytes."""
    return hashlib.sha256(data).hexdigest()


def hash_of(path: Path) -> str:
    """The hash of a file, which is not held in memory."""
    check_regular(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def verify_file(path: Path, digest: str) -> None:
    """Raise an error if a file is not as it was written."""
    if hash_of(path) != digest:
        raise _changed(path)


def read_verified(path: Path, digest: str, most_bytes: int | None = None) -> bytes:
    """Read a file and check its hash."""
    data = read_regular(path, most_bytes)
    if hash_bytes(data) != digest:
        raise _changed(path)
    return data


def _changed(path: Path) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"{path} is damaged; delete {path.parent} and start again",
        f"{path.name} is not as it was written",
    )
