"""What the metrics in the log of a run are, in RUN/metrics.json: title, unit and direction."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from attmask import atomic
from attmask.metric import Metric
from attmask.reading import MOST_BYTES, read_regular

CATALOG = "metrics.json"
_HIGHER = ("knn.", "segment_knn.", "classify.", "segment.", "detect.", "objects.attention")
"""Beginnings of keys that are better when higher, for logs without a catalog."""
_GROUPS = {
    "knn": "accuracy",
    "segment_knn": "accuracy",
    "classify": "accuracy",
    "segment": "accuracy",
    "detect": "accuracy",
    "loss": "loss",
    "health": "health",
    "label_free": "quality",
    "schedule": "schedule",
    "speed": "speed",
    "data": "speed",
    "objects": "objects",
}

log = logging.getLogger(__name__)


class Known(BaseModel):
    """What a metric is, without its value."""

    model_config = ConfigDict(frozen=True)
    title: str
    unit: str = ""
    higher_is_better: bool | None = None


_CATALOG = TypeAdapter(dict[str, Known])


class MetricCatalog:
    """The metrics of one run; new ones are written when they are met."""

    def __init__(self, run: Path) -> None:
        self._file = run / CATALOG
        self._known = read_catalog(run)

    def add(self, metrics: Sequence[Metric]) -> None:
        """Write what is not known yet; an error of the disk is a warning."""
        new = {
            m.key: Known(title=m.title, unit=m.unit, higher_is_better=m.higher_is_better)
            for m in metrics
            if m.key not in self._known
        }
        if not new:
            return
        self._known |= new
        content = {key: known.model_dump() for key, known in self._known.items()}
        try:
            atomic.write(self._file, json.dumps(content, indent=1) + "\n", flushes=False)
        except OSError as fault:
            log.warning("cannot write %s: %s", self._file, fault.strerror or fault)


def read_catalog(run: Path) -> dict[str, Known]:
    """The metrics of a run by their keys; none where they were not written."""
    try:
        return _CATALOG.validate_json(read_regular(run / CATALOG, MOST_BYTES))
    except (OSError, ValidationError):
        return {}


def assumed(key: str) -> Known:
    """What a metric most likely is, by its key alone."""
    higher = key.startswith(_HIGHER)
    return Known(title=key, unit="%" if higher else "", higher_is_better=higher or None)


def group_of(key: str) -> str:
    """The group in which a metric is shown: accuracy, loss, health, quality, schedule, ..."""
    return _GROUPS.get(key.partition(".")[0], "other")
