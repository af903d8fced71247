"""Checkpoints: written atomically, verified by hash when they are loaded.

RUN/checkpoints/damaged-step-00001500/                 put aside when a run was resumed without it
RUN/checkpoints/step-00001200/
    weights.safetensors  optimizer.safetensors  ...    tensors by name
    state.json  state.sha256                           step, hashes of the files, and more

In place of optimizer.safetensors, a run whose optimizer is sharded has a file of each process
(shard-00001-..., see `sharded`); any run can resume from either.
"""

import hashlib
import itertools
import json
import logging
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from attmask import atomic
from attmask.errors import UserError
from attmask.reading import MOST_BYTES, check_regular, read_regular
from attmask.settings import Config, setting

if TYPE_CHECKING:
    from attmask.sharded import Shards

log = logging.getLogger(__name__)

STATE = "state.json"
STATE_HASH = "state.sha256"
WEIGHTS = "weights"
OPTIMIZER = "optimizer"


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


def save(
    folder: Path,
    checkpoint: Checkpoint,
    *,
    keep: int,
    keep_every_steps: int | None = None,
    shards: "Shards | None" = None,
    writer: str | None = None,
) -> Path:
    """Write a checkpoint below `folder` and remove all but the newest `keep`.

    Those whose step is a multiple of `keep_every_steps` are never removed. Where the run is
    sharded, every process calls it with its `shards` and the `writer` of the main one (see
    `atomic.folder`), whose `checkpoint` holds the rest.
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
        _remove_older(folder, final, keep, keep_every_steps)
    return final


def _remove_older(folder: Path, final: Path, keep: int, keep_every_steps: int | None) -> None:
    """Remove what is not kept; the run goes on if that fails."""
    older = [other for other in _folders(folder) if other < final]
    for other in older[: max(0, len(older) + 1 - keep)]:
        if keep_every_steps is not None and step_of(other) % keep_every_steps == 0:
            continue
        try:
            atomic.remove_folder(other)
        except OSError as fault:
            log.warning(
                "cannot remove the older checkpoint %s: %s; the run goes on, remove it by hand",
                other,
                fault.strerror or fault,
            )


def _write_shards(folder: Path, shards: "Shards") -> dict[str, str]:
    """Write this process's shards; the hashes of the files of all processes."""
    own: dict[str, str] = {}
    for path in shards.write(folder):
        atomic.flush(path)  # on another machine the main process cannot
        own[path.name] = _hash_of(path)
    of_all = shards.gather(own)
    return {name: digest for of_one in of_all for name, digest in of_one.items()}


def _write(folder: Path, checkpoint: Checkpoint, hashes_of_shards: Mapping[str, str]) -> None:
    hashes = dict(hashes_of_shards)
    for name, tensors in checkpoint.tensors.items():
        path = folder / f"{name}.safetensors"
        _write_tensors(path, tensors)
        hashes[path.name] = _hash_of(path)
    state = {
        "step": checkpoint.step,
        "files": hashes,
        "shards": {OPTIMIZER: sorted(hashes_of_shards)} if hashes_of_shards else {},
        "info": dict(checkpoint.info),
    }
    data = json.dumps(state, indent=1).encode()
    (folder / STATE).write_bytes(data)
    (folder / STATE_HASH).write_text(_hash(data))


def _write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
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


def load(folder: Path, *, only: Collection[str] | None = None) -> Checkpoint:
    """Read a checkpoint and verify its files by their hashes.

    `only` names the groups of tensors to read, for instance `weights`; the files of the others are
    neither opened nor verified.
    """
    with _reading(folder):
        state = _read_state(folder)
        tensors = {
            name: _read_group(folder, files, in_shards=name in state.get("shards", {}))
            for name, files in _groups(state).items()
            if only is None or name in only
        }
    return Checkpoint(state["step"], tensors, state["info"], folder)


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
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


def _read_state(folder: Path) -> dict[str, Any]:
    digest = read_regular(folder / STATE_HASH, MOST_BYTES).decode("ascii", errors="replace")
    try:
        state = json.loads(_read(folder / STATE, digest, MOST_BYTES))
    except UserError:
        raise
    except (ValueError, RecursionError):
        state = None
    if (missing := _missing(state)) is not None:
        raise UserError(
            f"{folder / STATE} is not the state of a checkpoint: {missing}; use another checkpoint"
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


def _groups(state: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """The files of each group of tensors, with their hashes."""
    shards: dict[str, list[str]] = state.get("shards", {})
    groups = {name: {file: state["files"][file] for file in of} for name, of in shards.items()}
    for file, digest in state["files"].items():
        if not any(file in of for of in groups.values()):
            groups[file.removesuffix(".safetensors")] = {file: digest}
    return groups


def _read_group(folder: Path, files: Mapping[str, str], *, in_shards: bool) -> dict[str, Tensor]:
    if not in_shards:
        ((name, digest),) = files.items()
        try:
            return safetensors.torch.load(_read(folder / name, digest))
        except (SafetensorError, KeyError) as fault:  # of an unknown number format
            raise UserError(
                f"{folder / name} does not hold tensors; use another checkpoint"
            ) from fault
    from attmask.sharded import read_whole  # imports PyTorch's checkpoints, which takes a second

    for name, digest in files.items():
        _verify(folder / name, digest)
    return read_whole(folder, files)


def verify(folder: Path) -> None:
    """Raise an error, as `load` does, if a checkpoint is not whole; nothing is kept in memory."""
    with _reading(folder):
        for name, digest in _read_state(folder)["files"].items():
            _verify(folder / name, digest)


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


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _hash_of(path: Path) -> str:
    check_regular(path)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(2**20):
            digest.update(part)
    return digest.hexdigest()


def _verify(path: Path, digest: str) -> None:
    if _hash_of(path) != digest:
        raise _changed(path)


def _read(path: Path, digest: str, most_bytes: int | None = None) -> bytes:
    """Read a file and check its hash."""
    data = read_regular(path, most_bytes)
    if _hash(data) != digest:
        raise _changed(path)
    return data


def _changed(path: Path) -> DamagedCheckpointError:
    return DamagedCheckpointError(
        f"{path} is damaged; delete {path.parent} and start again",
        f"{path.name} is not as it was written",
    )
