"""When a run was started, stopped and warned of, in RUN/events.jsonl: one JSON object a line."""

import json
import logging
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from attmask.history import now
from attmask.reading import read_regular

EVENTS = "events.jsonl"
ENDS = ("stop", "finish", "fail", "return")
"""The kinds that end what a start has begun; a killed process leaves none of them."""

log = logging.getLogger(__name__)


class Event(BaseModel):
    """Something that happened to a run at a time."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["start", "stop", "finish", "fail", "return", "finding"]
    time: str
    """ISO 8601, in UTC."""
    step: int | None = None
    text: str = ""
    host: str | None = None
    processes: int | None = None
    device: str | None = None
    software: dict[str, str] = {}
    """The versions of packages."""
    format: str | None = None
    """The number format of the training, with which a start says what it runs on."""


def add_event(run: Path, kind: str, **values: Any) -> None:
    """Append an event; what a run can do without does not end it, so an error is a warning."""
    event = {"kind": kind, "time": now(), **values}
    try:
        with (run / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
    except OSError as fault:
        log.warning("cannot write %s: %s", run / EVENTS, fault.strerror or fault)


def read_events(run: Path) -> list[Event]:
    """The events of a run, oldest first; lines that are none are passed over."""
    try:
        lines = read_regular(run / EVENTS).split(b"\n")
    except OSError:
        return []
    events = []
    for line in lines:
        try:
            events.append(Event.model_validate_json(line))
        except ValidationError:  # half of a line after a kill, zeros after a power cut
            continue
    return events
