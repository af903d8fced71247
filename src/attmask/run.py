"""The folder of a run: its settings, its checkpoints, and whether they fit what is asked now."""

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor

from attmask import checkpoint, distributed
from attmask.checkpoint import Checkpoint
from attmask.config import PretrainConfig, differences, from_yaml, to_yaml
from attmask.data.source import Source
from attmask.errors import UserError

log = logging.getLogger(__name__)


class RunFolder:
    """Where a run is kept: begun once, taken up again as often as needed, never mixed."""

    def __init__(self, path: Path, config: PretrainConfig, source: Source) -> None:
        self.path = path
        self.config = config
        self.images = len(source)
        self.fingerprint = fingerprint(source)

    def take_up(self) -> Checkpoint | None:
        """The newest checkpoint of this run, or none where it begins; settings are written."""
        with self._mendable():
            found = self._find()
            self._write_config()
        return found

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], scaler: Mapping[str, object]
    ) -> None:
        """Write a checkpoint; only the main process does."""
        if not distributed.is_main():
            return
        info = {"scaler": dict(scaler), "images": self.images, "fingerprint": self.fingerprint}
        made = Checkpoint(step, tensors, info)
        checkpoint.save(self.path / "checkpoints", made, keep=self.config.checkpoint.keep)

    def _find(self) -> Checkpoint | None:
        saved = self.path / "config.yaml"
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file; choose another --out")
        if not saved.exists() and self.path.exists() and any(self.path.iterdir()):
            raise UserError(f"{self.path} is not empty and holds no run; choose another --out")
        found = checkpoint.load_newest(self.path / "checkpoints")
        if found is None:
            return None  # a run that saved nothing has nothing to lose
        if not saved.exists():
            raise UserError(f"{saved} is missing beside its checkpoints; put it back")
        if changed := differences(from_yaml(saved), self.config):
            raise UserError(
                f"{self.path} holds a run with other settings ({'; '.join(changed)}); "
                "choose another --out, or the same settings to go on"
            )
        if found.info["images"] != self.images:
            raise UserError(
                f"{self.path} holds a run on {found.info['images']} images, these are "
                f"{self.images}; choose another --out, or the same images to go on"
            )
        if found.info["fingerprint"] != self.fingerprint:
            raise UserError(
                f"{self.path} holds a run on {self.images} images of other names or classes; "
                "choose another --out, or the same images to go on"
            )
        return found

    def _write_config(self) -> None:
        if not distributed.is_main():
            return
        self.path.mkdir(parents=True, exist_ok=True)
        beside = self.path / ".config.yaml.part"  # a full disk must not spoil the one there is
        try:
            beside.write_text(to_yaml(self.config))
            beside.replace(self.path / "config.yaml")
        finally:
            beside.unlink(missing_ok=True)

    @contextmanager
    def _mendable(self) -> Iterator[None]:
        """A folder that cannot be read or written is for the user to mend: one line."""
        try:
            yield
        except OSError as fault:
            why = fault.strerror or fault
            raise UserError(
                f"cannot use {self.path} for a run: {why}; make room or choose another --out"
            ) from fault


def fingerprint(source: Source) -> str:
    """What the order of images and so every batch depends on: the names and the classes."""
    digest = hashlib.sha256()
    labels = source.labels
    for index in range(len(source)):
        label = -1 if labels is None else int(labels[index])
        digest.update(f"{source.name(index)}\t{label}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()
