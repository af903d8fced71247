"""What happened to a run besides its steps, in RUN/run.json: images, extensions, ways back."""

import json
import logging
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from attmask import atomic
from attmask.reading import MOST_BYTES, read_regular

RUN = "run.json"
LR_FACTOR = 0.5
"""What the learning rate is multiplied with each time a run goes back."""

log = logging.getLogger(__name__)
_Event = TypeVar("_Event", "Extension", "Return")


def now() -> str:
    """The time as text: ISO 8601, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class Extension(BaseModel):
    """A training that was made longer."""

    model_config = ConfigDict(frozen=True)
    step: int
    epochs_before: int
    epochs: int
    time: str


class Return(BaseModel):
    """A training that went back to a checkpoint because it was no longer finite."""

    model_config = ConfigDict(frozen=True)
    from_step: int
    to_step: int
    time: str


class History(BaseModel):
    """The record of a run; every change of it is written at once."""

    model_config = ConfigDict(frozen=True)
    data: str | None = None
    """The path of the images."""
    extensions: tuple[Extension, ...] = ()
    returns: tuple[Return, ...] = ()

    @property
    def lr_factor(self) -> float:
        """What the scheduled learning rate is multiplied with."""
        return LR_FACTOR ** len(self.returns)

    def with_changes(self, run: Path, **changes: object) -> "History":
        """Write a copy with other values, and return it."""
        changed = self.model_copy(update=changes)
        content = changed.model_dump(exclude_defaults=True)
        atomic.write(run / RUN, json.dumps(content, indent=1) + "\n")
        return changed


def read_history(run: Path) -> History:
    """The record of a run; an empty one where there is none or where it cannot be read."""
    try:
        return History.model_validate_json(read_regular(run / RUN, MOST_BYTES))
    except FileNotFoundError:
        return History()
    except (OSError, ValidationError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not the JSON of a run"
        log.warning("%s cannot be read (%s) and is passed over", run / RUN, why)
        return History()
