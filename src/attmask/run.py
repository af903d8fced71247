"""The folder of a run: its settings and checkpoints, and whether they match the current ones."""

import hashlib
import logging
import math
import re
import shutil
import socket
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from attmask import atomic, checkpoint, distributed
from attmask.agreement import SharedError, together
from attmask.checkpoint import Checkpoint
from attmask.data.contents import fingerprint
from attmask.data.source import Source
from attmask.data.stores.index import is_index
from attmask.divergence import DivergedError
from attmask.errors import UserError
from attmask.heartbeat import HEARTBEAT
from attmask.history import RUN, Extension, History, Return, now, read_history
from attmask.monitor import METRICS
from attmask.overrides import extra_of, fields_of, text_of
from attmask.run_config import (
    AnyRun,
    RunConfig,
    any_config,
    differences,
    from_yaml,
    read_yaml,
    to_yaml,
    with_length,
)
from attmask.schedules import LengthConfig
from attmask.wording import counted

if TYPE_CHECKING:
    from attmask.sharded import Shards

log = logging.getLogger(__name__)

CONFIG = "config.yaml"
MOST_RETURNS = 3
"""So often may a run go back to a checkpoint."""
CHECKPOINTS = "checkpoints"
_LONGEST_NAME = 100
_DISK_SECONDS = 30.0  # until a network disk shows a new file to other machines


class RunFolder:
    """The folder of one run, which can be resumed and is never mixed with another run."""

    def __init__(
        self, path: Path, config: RunConfig, source: Source, *, extend: bool = False
    ) -> None:
        self.path = path
        self.config = config
        self.extend = extend
        self.images = len(source)
        self.fingerprint = fingerprint(source)
        self.history = History()
        self.extended_from: LengthConfig | None = None
        """The schedule that the run had before it was made longer by this start."""
        self._data: Path | None = None
        self._has_checkpoints = False

    def resume(self, groups: Collection[str] | None = None) -> Checkpoint | None:
        """Write the settings and return the newest checkpoint, or None if there is none.

        `groups` are the tensors to read (None: all). All processes resume from the checkpoint that
        the main one finds.
        """
        with together(), self._disk_errors():
            refuse_other_folder(self.path)
        found = self._newest(groups)
        with together(), self._disk_errors():
            self._check(found)
        with together(), self._disk_errors():
            if distributed.is_main():
                self._write_settings(found)
                if found is not None:
                    self._has_checkpoints = True
                    self._put_damaged_aside(found.step)
        self.history = distributed.from_main(self.history)
        with together():
            self._check_shared_disk()
        return found

    def save(
        self,
        step: int,
        tensors: Mapping[str, Mapping[str, Tensor]],
        progress: Mapping[str, object],
        *,
        is_kept: bool = False,
        shards: "Shards | None" = None,
        writer: str | None = None,
    ) -> None:
        """Write a checkpoint; all processes do so together where it has shards.

        `progress` is what else is needed to go on, beside the tensors and the settings.
        """
        if not distributed.is_main() and shards is None:
            return
        if shards is None or shards.is_main:
            self._flush_log()
        info = {
            **progress,
            "images": self.images,
            "fingerprint": self.fingerprint,
            "config": self.config.model_dump(mode="json"),
        }
        checkpoint.save(
            self.path / CHECKPOINTS,
            Checkpoint(step, tensors, info, is_kept=is_kept),
            keep=self.config.checkpoint.keep,
            shards=shards,
            writer=writer,
        )
        self._has_checkpoints = True

    def keep_origin(self, data: Path) -> None:
        """Record the path of the images, for `attmask resume`."""
        self._data = data
        if distributed.is_main():
            with self._disk_errors():
                self.history = self.history.with_changes(self.path, data=str(data.absolute()))

    def go_back(self, fault: DivergedError) -> None:
        """Record that the run goes back to its last checkpoint; raise an error after too often.

        Whoever restores it then has a lower learning rate, in this process or in another one.
        """
        before = self.history
        if len(before.returns) >= MOST_RETURNS:
            raise SharedError(
                f"{fault}; the run went back {MOST_RETURNS} times, the last time with "
                f"{before.lr_factor:g} of its learning rate, and its checkpoints are from before"
            ) from fault
        with together(), self._disk_errors():
            if distributed.is_main():
                last = checkpoint.newest(self.path / "checkpoints")
                to_step = 0 if last is None else int(last.name.partition("-")[2])
                event = Return(from_step=fault.step, to_step=to_step, time=now())
                returns = (*before.returns, event)
                after = before.with_changes(self.path, returns=returns)
                log.warning(
                    "loss or gradients are no longer finite at step %d: going back to step %d, "
                    "with %g of the learning rate (%d of at most %d times)",
                    fault.step,
                    to_step,
                    after.lr_factor,
                    len(returns),
                    MOST_RETURNS,
                )

    def removed(self) -> Path | None:
        """What was removed or renamed while the run trained: its folder or that of its checkpoints.

        Names are looked at, not inodes, which some network disks change.
        """
        folder = self.path / CHECKPOINTS
        with suppress(OSError):  # a disk that does not answer has not lost the folder
            if not (self.path / CONFIG).exists():
                return self.path
            if self._has_checkpoints and not folder.is_dir():
                return folder
        return None

    def write_again(self) -> None:
        """Write the settings and the path of the images into a folder that was removed."""
        with self._disk_errors():
            atomic.write(self.path / CONFIG, to_yaml(self.config))
        if self._data is not None:
            self.keep_origin(self._data)
        self._has_checkpoints = False

    def _flush_log(self) -> None:
        """Wait until the log is on the disk, so that no checkpoint is ahead of it."""
        with self._disk_errors(), suppress(FileNotFoundError):
            for path in (self.path / METRICS, self.path):
                atomic.flush(path)

    def check_room(self, checkpoint_bytes: int) -> None:
        """Raise an error if the disk has no room for one more checkpoint."""
        free = self.free_bytes()
        if free < checkpoint_bytes:
            raise UserError(
                f"a checkpoint takes {amount(checkpoint_bytes)}, but the disk of {self.path} has "
                f"{amount(free)} free; make room or choose another --out"
            )

    def count_checkpoints(self) -> int:
        """How many there are by now."""
        return checkpoint.count(self.path / CHECKPOINTS)

    def free_bytes(self) -> int:
        """The room on the disk of the run."""
        there = next(p for p in (self.path.absolute(), *self.path.absolute().parents) if p.exists())
        return shutil.disk_usage(there).free

    def _newest(self, groups: Collection[str] | None) -> Checkpoint | None:
        """The newest intact checkpoint, the same for all processes."""
        folder = self.path / CHECKPOINTS
        if distributed.world_size() == 1:
            with self._disk_errors():
                return checkpoint.load_newest(folder, only=groups)
        with together(), self._disk_errors():
            mine = checkpoint.find_newest(folder) if distributed.is_main() else None
        name = distributed.from_main(None if mine is None else mine.name)
        with together(), self._disk_errors():
            return None if name is None else checkpoint.load(folder / name, only=groups)

    def _put_damaged_aside(self, step: int) -> None:
        """Put aside the damaged checkpoints that were passed over, and say what that costs."""
        aside = checkpoint.put_damaged_aside(self.path / CHECKPOINTS, newer_than=step)
        if not aside:
            return
        last = max(int(path.name.split("-")[2]) for path in aside)
        log.warning(
            "resuming at step %d: what was trained after it is trained again (%s or more); what is "
            "damaged is put aside as %s, delete it when you no longer need it",
            step,
            counted(last - step, "step"),
            ", ".join(str(path) for path in aside),
        )

    def _check(self, found: Checkpoint | None) -> None:
        """Raise an error if the folder holds something else than this run."""
        if found is None:
            return  # a run that saved nothing has nothing to lose
        check_settings(
            self.path,
            _config_of(self.path, found, type(self.config)),
            self.config,
            extend=self.extend,
        )
        if (images := found.info.get("images")) != self.images:
            raise UserError(
                f"{self.path} holds a run on {str(images)[:20]} images, these are "
                f"{self.images}; choose another --out, or use the same images to resume"
            )
        if found.info.get("fingerprint") != self.fingerprint:
            raise UserError(
                f"{self.path} holds a run on {self.images} images of other names or classes; "
                "choose another --out, or use the same images to resume"
            )

    def _write_settings(self, found: Checkpoint | None) -> None:
        """Write the settings; a run that is made longer is recorded as such."""
        self.history = read_history(self.path)
        before = self.config if found is None else _config_of(self.path, found, type(self.config))
        if _length(before) != _length(self.config) and found is not None:
            self.extended_from = before.schedule
            event = Extension(
                step=found.step,
                epochs_before=before.schedule.epochs,
                epochs=self.config.schedule.epochs,
                time=now(),
            )
            extensions = (*self.history.extensions, event)
            self.history = self.history.with_changes(self.path, extensions=extensions)
        atomic.write(self.path / CONFIG, to_yaml(self.config))

    def _check_shared_disk(self) -> None:
        """Raise an error if this process does not see what the main one has written."""
        until = time.monotonic() + _DISK_SECONDS
        while distributed.world_size() > 1 and not (self.path / CONFIG).exists():
            if time.monotonic() > until:
                raise UserError(
                    f"{self.path / CONFIG}, which the main process has written, is not seen on "
                    f"{socket.gethostname()}; choose an --out on a disk that all machines share"
                )
            time.sleep(0.5)

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        """Turn an error of the disk into a one-line UserError."""
        try:
            yield
        except OSError as fault:
            why = fault.strerror or fault
            raise UserError(
                f"cannot use {self.path} for a run: {why}; {atomic.what_to_do(fault)}, or use "
                "another --out"
            ) from fault


def check_settings(run: Path, there: RunConfig, asked: RunConfig, *, extend: bool = False) -> None:
    """Raise an error if a run cannot be resumed with these settings.

    A run that is to `extend` may have more epochs, or more steps where these are counted.
    """
    before, wanted = _length(there), _length(asked)
    others = differences(with_length(there, asked.schedule), asked)
    if others or (wanted != before and not extend):
        changed = "; ".join(others if extend else differences(there, asked))
        longer = wanted > before and not others
        advice = "add --extend to train longer" if longer else "choose another --out"
        raise UserError(
            f"{run} holds a run with other settings ({changed}); {advice}, or use the same "
            "settings to resume"
        )
    in_steps = math.isfinite(before[1])
    if wanted < before or (in_steps and wanted != before and wanted[1] <= before[1]):
        unit = "steps" if in_steps else "epochs"
        count = getattr(there.schedule, unit)
        raise UserError(
            f"{run} holds a run of {count} {unit}, and --extend only makes it longer; use "
            f"schedule.{unit}={count + 1} or more"
        )


def _length(config: RunConfig) -> tuple[int, float]:
    """The epochs of a training, and its steps where it may end inside of an epoch."""
    steps: int | None = getattr(config.schedule, "steps", None)
    return config.schedule.epochs, math.inf if steps is None else float(steps)


def refuse_other_folder(path: Path) -> None:
    """Raise an error if there is something at the path of a run that is no run; an index is none
    yet, but may lie there alone."""
    try:
        if not path.is_dir():
            if path.exists():
                raise UserError(f"{path} is a file; choose another --out")
            return
    except OSError:  # no such path can be: for whoever writes there to tell
        return
    if any((path / part).exists() for part in (CONFIG, CHECKPOINTS)):
        return
    # A run that was killed, or whose disk failed, while it wrote its settings has left a part.
    entries = (entry for entry in path.iterdir() if entry.name != HEARTBEAT)
    if any(not is_index(entry) and not atomic.is_unfinished(entry) for entry in entries):
        raise UserError(f"{path} is not empty and holds no run; choose another --out")


def saved_config(run: Path, kinds: Sequence[type[AnyRun]]) -> AnyRun:
    """The settings of an existing run of any of these kinds."""
    if (run / CONFIG).is_file():
        return any_config(read_yaml(run / CONFIG), kinds, str(run / CONFIG))
    found = checkpoint.load_newest(run / CHECKPOINTS, only=())
    if found is None:
        raise UserError(f"{run} holds no run; give a folder that `attmask pretrain` has made")
    return _from_checkpoint(run, found, kinds)


def _config_of(run: Path, found: Checkpoint, kind: type[AnyRun]) -> AnyRun:
    """The settings in config.yaml or, where that is missing, those in the checkpoint."""
    saved = run / CONFIG
    return from_yaml(saved, kind) if saved.exists() else _from_checkpoint(run, found, [kind])


def _from_checkpoint(run: Path, found: Checkpoint, kinds: Sequence[type[AnyRun]]) -> AnyRun:
    saved = run / CONFIG
    if "config" not in found.info:
        raise UserError(
            f"{saved} is missing beside its checkpoints; put it back, or make it again: start the "
            f"same command with another --out, stop it, and copy its {CONFIG} to {run}"
        )
    if distributed.is_main():
        log.warning("%s is missing; its settings are taken from the checkpoint", saved)
    return any_config(found.info["config"], kinds, f"the checkpoint in {run}", whole=False)


def origin_of(run: Path) -> Path:
    """The path of the images that the run was started with."""
    if (stated := read_history(run).data) is None:
        raise UserError(
            f"{run / RUN} does not say where the images of the run are; use attmask resume {run} "
            "--data DATA"
        )
    if not (data := Path(stated)).exists():
        shown = data if str(data).isprintable() else repr(str(data))
        raise UserError(
            f"the images of {run} are no longer in {shown}; use attmask resume {run} --data NEW"
        )
    return data


def default_folder(data: Path, name: str, recipe: RunConfig, config: RunConfig) -> Path:
    """runs/DATA-RECIPE, followed by each setting that changes the result and is not the recipe's.

    Operational settings are left out, so that a run can be resumed with other ones.
    """
    keys = [key for key, field in fields_of(type(config)) if not extra_of(field)["operational"]]
    ends = [key.rpartition(".")[2] for key in keys]
    parts = [f"{data.resolve().name}-{Path(name).stem}"]
    for key, end in zip(keys, ends, strict=True):
        value = attrgetter(key)(config)
        if value != attrgetter(key)(recipe):
            shown = re.sub(r"[^\w.,-]+", "", text_of(value).replace(", ", ","))
            parts.append(f"{end if ends.count(end) == 1 else key}-{shown}")
    whole = "+".join(parts)
    if len(whole) > _LONGEST_NAME:
        digest = hashlib.sha256(whole.encode(errors="surrogateescape")).hexdigest()[:8]
        whole = f"{whole[:_LONGEST_NAME]}+{digest}"
    return Path("runs") / whole


def amount(size: int) -> str:
    """A number of bytes in a unit that a person reads."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
