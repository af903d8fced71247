"""What happened to a run, in time: its sessions, and every event with the step and the hour."""

from typing import Any

import numpy as np

from attmask.curves.run_curves import RunCurves
from attmask.curves.timing import Session, iso, seconds
from attmask.divergence import INCIDENTS
from attmask.history import read_history
from attmask.monitor import TIME
from attmask.wording import counted

_SKIPPED = "health.skipped_steps"
_MOST_EVENTS = 200


def timeline_of(run: RunCurves) -> dict[str, Any]:
    """Sessions and events in the shape of the page, oldest first."""
    clock = _Clock(run)
    sessions = [_session(each, clock) for each in run.sessions]
    events: list[dict[str, Any]] = [
        {"time": each.time, "step": each.step, "kind": each.kind, "text": each.text}
        for each in run.events
    ]
    events += [
        {
            "time": each.end,
            "step": each.to_step,
            "kind": "kill",
            "text": f"ended without a word after step {each.to_step}; a resumed run goes on from "
            "its last checkpoint",
        }
        for each in run.sessions
        if each.ended == "killed"
    ]
    history = read_history(run.folder)
    events += [
        {
            "time": each.time,
            "step": each.from_step,
            "kind": "return",
            "text": f"no longer finite: went back to step {each.to_step} with half the learning "
            "rate",
        }
        for each in history.returns
        if not any(event.kind == "return" for event in run.events)  # of earlier versions
    ]
    events += [
        {
            "time": each.time,
            "step": each.step,
            "kind": "extend",
            "text": f"extended from {each.epochs_before} to {each.epochs} epochs",
        }
        for each in history.extensions
    ]
    events += _skipped(run)
    placed = [event | {"hours": clock.at(event["step"], event["time"])} for event in events]
    placed.sort(key=lambda event: (event["hours"] or 0.0, event["time"] or "", event["step"] or 0))
    return {"sessions": sessions, "events": placed[-_MOST_EVENTS:]}


class _Clock:
    """The hours of training at a step."""

    def __init__(self, run: RunCurves) -> None:
        order = np.argsort(run.steps.step, kind="stable")
        known = np.isfinite(run.steps.hours[order])
        self._steps, self._hours = run.steps.step[order][known], run.steps.hours[order][known]
        times = [(record[TIME], record["step"] + 1) for record in run.records if TIME in record]
        self._times = np.array(times, dtype=np.float64).reshape(-1, 2)

    def at(self, step: int | None, time: str | None = None) -> float | None:
        """The hours at a step, or at a time if the step is not known."""
        if not len(self._steps):
            return None
        if step is None and time is not None and len(self._times):
            after = int(np.searchsorted(self._times[:, 0], seconds(time)))
            step = int(self._times[min(after, len(self._times) - 1), 1])
        if step is None:
            return None
        return float(np.interp(step, [0.0, *self._steps], [0.0, *self._hours]))


def _session(session: Session, clock: _Clock) -> dict[str, Any]:
    start = session.start
    where = [start.host, start.device, start.format]
    if start.processes and start.processes > 1:
        where.append(f"{start.processes} processes")
    begin = start.step or 0
    return {
        "start": start.time,
        "end": session.end,
        "from_hours": clock.at(begin) or 0.0,
        "to_hours": clock.at(session.to_step) or 0.0,
        "from_step": begin,
        "to_step": session.to_step,
        "ended": session.ended,
        "where": ", ".join(filter(None, where)),
    }


def _skipped(run: RunCurves) -> list[dict[str, Any]]:
    """Where the log shows that steps were skipped."""
    events, before = [], 0.0
    for record in run.records:
        count = record.get(_SKIPPED)
        if not isinstance(count, int | float):
            continue
        if count > before:
            said = counted(int(count - before), "step")
            events.append(
                {
                    "time": iso(record[TIME]) if TIME in record else None,
                    "step": int(record["step"]) + 1,
                    "kind": "skip",
                    "text": f"{said} skipped: not finite; see {INCIDENTS}/",
                }
            )
        before = count
    return events
