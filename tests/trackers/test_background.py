"""A tracker that is slow, fails or hangs costs a training one warning."""

import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from attmask.trackers import background
from attmask.trackers.background import Background, close_all
from attmask.trackers.tracker import KNOWN_RUNS, TrackedRun


class Listed:
    """A tracker that keeps what it gets, and fails at a step or when it is closed."""

    def __init__(self, fails_at: int | None = None, fails_to_close: bool = False) -> None:
        self.got: list[tuple[Mapping[str, float], int, int]] = []
        self.fails_at, self.fails_to_close = fails_at, fails_to_close
        self.closed: list[bool] = []

    def log(self, metrics: Mapping[str, float], step: int, epoch: int) -> None:
        if step == self.fails_at:
            raise ConnectionError("the server is gone\nand a second line")
        self.got.append((metrics, step, epoch))

    def close(self, failed: bool) -> None:
        self.closed.append(failed)
        if self.fails_to_close:
            raise OSError(28, "No space left on device")


def log_steps(tracker: Background, steps: int) -> None:
    for step in range(steps):
        tracker.log({"loss.total": step / 2}, step, 0)


def test_records_come_in_order_and_closing_waits_for_the_last() -> None:
    listed = Listed()
    tracker = Background("Listed", lambda: listed)
    log_steps(tracker, 100)
    close_all([tracker], failed=False, seconds=10.0)
    assert listed.got == [({"loss.total": step / 2}, step, 0) for step in range(100)]
    assert listed.closed == [False]


def test_a_tracker_that_gets_nothing_is_never_opened() -> None:
    tracker = Background("Unopened", lambda: pytest.fail("opened"))
    close_all([tracker], failed=False, seconds=10.0)


def test_a_tracker_that_fails_warns_once_in_the_thread_of_the_training(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed = Listed(fails_at=3)
    tracker = Background("Listed", lambda: listed)
    log_steps(tracker, 10)
    close_all([tracker], failed=False, seconds=10.0)
    log_steps(tracker, 10)
    (record,) = caplog.records
    assert record.message == (
        "Listed failed (ConnectionError: the server is gone) and gets no more metrics until the "
        "run is resumed; metrics.jsonl has all"
    )
    assert record.levelno == logging.WARNING
    assert record.thread == threading.get_ident()
    assert [step for _, step, _ in listed.got] == [0, 1, 2]
    assert listed.closed == [True]


def test_a_tracker_that_cannot_be_opened_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    def refuse() -> Listed:
        raise PermissionError("not allowed")

    tracker = Background("Refused", refuse)
    log_steps(tracker, 5)
    close_all([tracker], failed=False, seconds=10.0)
    (message,) = caplog.messages
    assert message.startswith("Refused failed (PermissionError: not allowed)")


def test_a_tracker_that_fails_at_the_end_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    listed = Listed(fails_to_close=True)
    tracker = Background("Full", lambda: listed)
    log_steps(tracker, 2)
    close_all([tracker], failed=False, seconds=10.0)
    (message,) = caplog.messages
    assert "No space left on device" in message


def test_trackers_that_hang_are_left_behind_together(caplog: pytest.LogCaptureFixture) -> None:
    stuck, abandoned = threading.Event(), []

    def hang() -> Listed:
        stuck.wait(60)
        return Listed()

    trackers = [Background(str(n), hang, lambda: abandoned.append(True)) for n in range(2)]
    began = time.monotonic()
    for tracker in trackers:
        log_steps(tracker, 3)
    close_all(trackers, failed=False, seconds=0.2)
    assert time.monotonic() - began < 5
    stuck.set()
    assert [message.partition(" and ")[0] for message in caplog.messages] == [
        f"{n} did not take all metrics in time" for n in range(2)
    ]
    assert len(abandoned) == 2


def test_a_tracker_that_falls_behind_is_turned_off(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_LONGEST_QUEUE", 4)
    stuck = threading.Event()

    def hang() -> Listed:
        stuck.wait(60)
        return Listed()

    tracker = Background("Slow", hang)
    log_steps(tracker, 20)
    close_all([tracker], failed=False, seconds=0.1)
    stuck.set()
    (message,) = caplog.messages
    assert message.startswith("Slow is 4 records behind")


def test_ids_are_kept_for_whoever_resumes_and_forgotten_by_a_new_run(tmp_path: Path) -> None:
    begun = TrackedRun(tmp_path, 0, {})
    begun.keep_id("wandb", "abc")
    begun.keep_id("mlflow", "def")
    resumed = TrackedRun(tmp_path, 5, {})
    assert (resumed.id_at("wandb"), resumed.id_at("mlflow")) == ("abc", "def")
    assert begun.id_at("wandb") is None
    assert resumed.id_at("another") is None


@pytest.mark.parametrize("spoilt", ["", "{", "[1]"])
def test_a_spoilt_list_of_ids_begins_new_runs(tmp_path: Path, spoilt: str) -> None:
    (tmp_path / KNOWN_RUNS).write_text(spoilt)
    assert TrackedRun(tmp_path, 5, {}).id_at("wandb") is None
