"""k-NN accuracy of simple baselines on the images of a run, in RUN/baselines.json."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from attmask import atomic, distributed
from attmask.reading import MOST_BYTES, read_regular

BASELINES = "baselines.json"
PIXELS = "raw pixels"
_VALUES = TypeAdapter(dict[str, float])

log = logging.getLogger(__name__)


def keep_baselines(run: Path, measure: Callable[[], dict[str, float]]) -> None:
    """Measure the baselines once in a run, and write them; all processes call it together."""
    if distributed.from_main((run / BASELINES).exists()):
        return
    measured = measure()
    if not measured or not distributed.is_main():
        return
    try:
        atomic.write(run / BASELINES, json.dumps(measured, indent=1) + "\n")
    except OSError as fault:  # a run can do without them
        log.warning("cannot write %s: %s", run / BASELINES, fault.strerror or fault)


def read_baselines(run: Path) -> dict[str, float]:
    """The baselines of a run in per cent; none where they were not measured."""
    try:
        return _VALUES.validate_json(read_regular(run / BASELINES, MOST_BYTES))
    except (OSError, ValidationError):
        return {}
