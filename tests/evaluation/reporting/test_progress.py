import logging

import pytest

from attmask.evaluation.reporting import progress


def test_a_pipe_gets_a_line_now_and_then(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with caplog.at_level(logging.INFO), progress.counting("reading", 10) as count:
        count(4)
        count(6)
    assert caplog.messages == ["reading: 4 of 10", "reading: 10 of 10"]


def test_a_pipe_is_not_flooded(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), progress.counting("reading", 1000) as count:
        for _ in range(1000):
            count(1)
    assert caplog.messages == []
