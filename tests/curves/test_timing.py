"""Sessions and hours follow from events and the times of records."""

from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

from attmask.curves.timing import sessions, training_hours
from attmask.events import Event


def at(minutes: float) -> float:
    return 1_800_000_000.0 + 60 * minutes


def event(kind: Any, minutes: float, step: int = 0) -> Event:
    time = datetime.fromtimestamp(at(minutes), timezone.utc).isoformat(timespec="seconds")
    return Event(kind=kind, time=time, step=step)


def record(step: int, minutes: float) -> dict[str, Any]:
    return {"step": step, "epoch": 0, "time": at(minutes), "loss.total": 1.0}


def test_a_start_without_an_end_before_the_next_start_was_killed() -> None:
    events = [event("start", 0), event("start", 100, 5), event("finish", 120, 9)]
    records = [record(0, 10), record(4, 30), record(8, 115)]
    first, second = sessions(events, records)
    assert (first.ended, first.to_step, second.ended, second.to_step) == (
        "killed",
        5,
        "finished",
        9,
    )
    assert first.end == event("stop", 30).time


@pytest.mark.parametrize(("lives", "ended"), [(True, "training"), (False, "killed")])
def test_the_last_session_trains_as_long_as_its_process_lives(lives: bool, ended: str) -> None:
    (only,) = sessions([event("start", 0)], [record(0, 10)], lives=lives)
    assert only.ended == ended


def test_findings_do_not_end_a_session_and_failures_do() -> None:
    events = [event("start", 0), event("finding", 5), event("fail", 7, 3)]
    (only,) = sessions(events, [])
    assert (only.ended, only.to_step) == ("failed", 3)


def test_a_run_that_goes_back_to_a_checkpoint_was_not_killed() -> None:
    events = [event("start", 0), event("return", 7, 60), event("start", 8, 40), event("finish", 9)]
    assert [each.ended for each in sessions(events, [])] == ["went back", "finished"]


def test_hours_leave_out_the_pause_between_two_sessions() -> None:
    events = [event("start", 0), event("stop", 31), event("start", 600, 5)]
    records = [record(0, 6), record(4, 30), record(8, 612)]
    hours = training_hours(records, events, batch_size=8)
    np.testing.assert_allclose(hours, [0.1, 0.5, 0.7])


def test_a_log_without_times_is_timed_by_its_speed() -> None:
    records = [
        {"step": 9, "epoch": 0, "loss.total": 1.0, "speed.images_per_second": 80.0},
        {"step": 9, "epoch": 1, "knn.top1": 40.0},
        {"step": 19, "epoch": 1, "loss.total": 1.0, "speed.images_per_second": 40.0},
    ]
    hours = training_hours(records, [], batch_size=64)
    np.testing.assert_allclose(hours * 3600, [8.0, 8.0, 24.0])


def test_hours_that_nobody_knows_are_not_a_number() -> None:
    assert np.isnan(training_hours([{"step": 0, "epoch": 0}], [], batch_size=1)).all()


def test_a_log_without_events_has_no_sessions() -> None:
    assert sessions([], [record(0, 10)]) == []


def test_after_a_kill_the_steps_done_again_take_time_and_the_pause_does_not() -> None:
    events = [event("start", 0), event("start", 100, 5), event("finish", 130, 9)]
    records = [record(4, 30), record(6, 40), record(5, 112), record(8, 124)]
    hours = training_hours(records, events, batch_size=8)
    np.testing.assert_allclose(hours * 60, [30, 40, 52, 64])
    assert (np.diff(hours) >= 0).all()
