import json
import logging
from pathlib import Path

import pytest

from attmask.events import EVENTS, add_event, read_events


def test_events_are_read_back_in_their_order(tmp_path: Path) -> None:
    add_event(tmp_path, "start", step=0, text="started at step 0 of 9", host="a", processes=2)
    add_event(tmp_path, "finding", step=5, text="targets are uniform\nsecond line")
    add_event(tmp_path, "finish", step=9)
    found = read_events(tmp_path)
    assert [event.kind for event in found] == ["start", "finding", "finish"]
    assert (found[0].host, found[0].processes, found[2].step) == ("a", 2, 9)
    assert len((tmp_path / EVENTS).read_text().splitlines()) == 3


def test_lines_that_a_kill_or_a_power_cut_left_are_passed_over(tmp_path: Path) -> None:
    add_event(tmp_path, "start", step=0)
    with (tmp_path / EVENTS).open("ab") as file:
        file.write(b'{"kind": "sto\n\0\0\0\n{"kind": "dance", "time": "now"}\n\xff\n')
    add_event(tmp_path, "stop", step=3)
    assert [event.kind for event in read_events(tmp_path)] == ["start", "stop"]


def test_a_run_without_events_has_none(tmp_path: Path) -> None:
    assert read_events(tmp_path) == []


def test_an_error_of_the_disk_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / EVENTS).mkdir()
    with caplog.at_level(logging.WARNING):
        add_event(tmp_path, "start", step=0)
    assert "cannot write" in caplog.text
    assert read_events(tmp_path) == []


def test_times_are_iso_8601_in_utc(tmp_path: Path) -> None:
    add_event(tmp_path, "start")
    assert json.loads((tmp_path / EVENTS).read_text())["time"].endswith("+00:00")
