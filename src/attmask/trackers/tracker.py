"""What a tracker is, what it is told about a run, and which of its runs belongs to ours."""

import json
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from attmask import atomic

KNOWN_RUNS = "trackers.json"
_writing = threading.Lock()  # trackers open in threads of their own


class Tracker(Protocol):
    """Where metrics are shown; any method may raise and may take long."""

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        """Add the metrics of one record of the log."""

    def close(self, failed: bool) -> None:
        """Send what is left; `failed` if the training ended with an error."""


@dataclass(frozen=True)
class TrackedRun:
    """A run as its trackers see it when they open."""

    folder: Path
    start_step: int
    settings: Mapping[str, Any]
    """In groups, as in config.yaml."""
    sent: frozenset[tuple[int, int]] = frozenset()
    """Step and epoch of the records that an earlier process has sent and this one repeats."""

    def id_at(self, tracker: str) -> str | None:
        """The id of this run at a tracker, if an earlier process of it has made one there."""
        return None if self.start_step == 0 else _known_ids(self.folder).get(tracker)

    def keep_id(self, tracker: str, run_id: str) -> None:
        """Keep the id for whoever resumes this run."""
        with _writing:
            known = _known_ids(self.folder) | {tracker: run_id}
            atomic.write(self.folder / KNOWN_RUNS, json.dumps(known, indent=1) + "\n")


def _known_ids(folder: Path) -> dict[str, str]:
    known: object = None
    with suppress(OSError, ValueError):  # a tracker then begins a new run
        known = json.loads((folder / KNOWN_RUNS).read_text())
    return known if isinstance(known, dict) else {}
