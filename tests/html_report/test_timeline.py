"""What happened to a run, in the order of time."""

from dataclasses import replace
from pathlib import Path

from attmask.curves.run_curves import read_curves
from attmask.events import Event
from attmask.html_report.timeline import timeline_of


def test_a_run_that_was_extended_has_two_sessions_and_says_so(run: Path) -> None:
    timeline = timeline_of(read_curves(run))
    assert [each["ended"] for each in timeline["sessions"]] == ["finished", "finished"]
    first, second = timeline["sessions"]
    assert (first["from_step"], first["to_step"], second["from_step"]) == (0, 12, 12)
    assert first["to_hours"] <= second["from_hours"] <= second["to_hours"]
    kinds = [each["kind"] for each in timeline["events"]]
    assert kinds.count("start") == 2
    assert "extended from 2 to 3 epochs" in [each["text"] for each in timeline["events"]]
    assert all(each["hours"] is not None for each in timeline["events"])


def test_a_session_without_an_end_is_a_kill(run: Path) -> None:
    curves = read_curves(run)
    start = next(event for event in curves.events if event.kind == "start")
    (killed, *_) = replace(curves.sessions[0], ended="killed"), None
    found = timeline_of(replace(curves, events=[start], sessions=[killed]))
    assert "kill" in [each["kind"] for each in found["events"]]


def test_skipped_steps_and_findings_have_their_step(run: Path) -> None:
    curves = read_curves(run)
    records = [dict(record) for record in curves.records]
    for record in records[-4:]:
        if "loss.total" in record:
            record["health.skipped_steps"] = 2
    finding = Event(kind="finding", time="2026-11-18T10:00:00+00:00", step=7, text="collapsed")
    found = timeline_of(replace(curves, records=records, events=[*curves.events, finding]))
    texts = {each["kind"]: each for each in found["events"]}
    assert texts["skip"]["text"].startswith("2 steps skipped")
    assert texts["finding"]["step"] == 7


def test_a_run_without_a_record_of_events_has_an_empty_timeline(run: Path) -> None:
    curves = replace(read_curves(run), events=[], sessions=[])
    assert timeline_of(curves)["sessions"] == []
