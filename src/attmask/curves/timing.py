"""The sessions of a run, and the hours of training at each record of its log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np
from jaxtyping import Float64

from attmask.events import ENDS, Event
from attmask.monitor import TIME

Record: TypeAlias = Mapping[str, Any]
_SPEED = "speed.images_per_second"
_ENDED: dict[str, Literal["stopped", "finished", "failed", "went back"]] = {
    "stop": "stopped",
    "finish": "finished",
    "fail": "failed",
    "return": "went back",
}


@dataclass(frozen=True)
class Session:
    """One process that trained a run, from its start to its end."""

    start: Event
    end: str | None
    """The time of its end; of a killed one that of its last sign of life, None if there is none."""
    ended: Literal["stopped", "finished", "failed", "went back", "killed", "training"]
    to_step: int


def sessions(
    events: Sequence[Event], records: Sequence[Record], *, lives: bool = False
) -> list[Session]:
    """The sessions of a run; `lives` says whether the last one is still training.

    A start that is followed by another one without an end was killed.
    """
    starts = [number for number, event in enumerate(events) if event.kind == "start"]
    found = []
    for number, after in pairwise([*starts, len(events)]):
        start = events[number]
        end = next((event for event in events[number:after] if event.kind in ENDS), None)
        if end is not None:
            to_step = start.step or 0 if end.step is None else end.step
            found.append(Session(start, end.time, _ENDED[end.kind], to_step))
            continue
        until = seconds(events[after].time) if after < len(events) else np.inf
        own = [each for each in records if seconds(start.time) <= each.get(TIME, -1) < until]
        last = own[-1] if own else None
        is_open = after == len(events) and lives
        found.append(
            Session(
                start,
                None if last is None or is_open else iso(last[TIME]),
                "training" if is_open else "killed",
                start.step or 0 if last is None else int(last["step"]) + 1,
            )
        )
    return found


def training_hours(
    records: Sequence[Record], events: Sequence[Event], *, batch_size: int
) -> Float64[np.ndarray, " n"]:
    """The hours of training at each record, without the pauses between two sessions.

    Logs without times (of earlier versions) are timed by their speed; what is not known is NaN.
    """
    if not any(TIME in record for record in records):
        return _hours_by_speed(records, batch_size)
    starts = np.array([seconds(event.time) for event in events if event.kind == "start"])
    passed, before, hours = 0.0, None, []
    for record in records:
        now = record.get(TIME)
        if now is None:
            hours.append(passed / 3600 if before is not None else np.nan)
            continue
        began = starts[starts <= now]
        since = began[-1] if len(began) else None
        if before is None:
            passed += 0.0 if since is None else now - since
        else:
            passed += max(0.0, now - (before if since is None else max(before, since)))
        before = now
        hours.append(passed / 3600)
    return np.array(hours, dtype=np.float64)


def _hours_by_speed(records: Sequence[Record], batch_size: int) -> Float64[np.ndarray, " n"]:
    passed, done, hours = 0.0, 0, []
    known = any(_SPEED in record for record in records)
    for record in records:
        speed = record.get(_SPEED)
        if speed:
            passed += (record["step"] + 1 - done) * batch_size / speed
            done = record["step"] + 1
        hours.append(passed / 3600 if known else np.nan)
    return np.array(hours, dtype=np.float64)


def seconds(moment: str) -> float:
    """An ISO time in seconds since 1970."""
    return datetime.fromisoformat(moment).timestamp()


def iso(moment: float) -> str:
    """Seconds since 1970 as an ISO time in UTC."""
    return datetime.fromtimestamp(moment, timezone.utc).isoformat(timespec="seconds")
