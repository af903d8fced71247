"""Metrics survive being killed, a full disk is one clear line, progress suits where it is shown."""

import io
import json
import logging
import math
import re
import resource
import time
from pathlib import Path

import pytest
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from attmask.errors import UserError
from attmask.metric import Metric
from attmask.metric_catalog import CATALOG
from attmask.monitor import METRICS, OLD_METRICS, Monitor, MonitorConfig, read_metrics

QUIET = MonitorConfig(tensorboard=False)


def pipe() -> Console:
    return Console(file=io.StringIO())


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=160)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def number(key: str, value: float) -> Metric:
    return Metric(key, value, "", None)


def run_steps(run: Path, start: int, stop: int, config: MonitorConfig = QUIET) -> None:
    with Monitor(run, config, total_steps=10, start_step=start, console=pipe()) as monitor:
        for step in range(start, stop):
            monitor.log(number("loss.total", step / 10), number("a.lr", 0.5), step=step, epoch=0)


def test_what_is_logged_can_be_read_back_before_the_run_ends(tmp_path: Path) -> None:
    with Monitor(tmp_path, QUIET, total_steps=2, console=pipe()) as monitor:
        monitor.log(number("loss.total", 1.5), number("schedule.lr", 0), step=0, epoch=3)
        (logged,) = read_metrics(tmp_path)
        assert abs(logged.pop("time") - time.time()) < 60
        assert logged == {"step": 0, "epoch": 3, "loss.total": 1.5, "schedule.lr": 0.0}


def test_a_log_of_an_earlier_version_is_read_under_todays_keys(tmp_path: Path) -> None:
    old = '{"step": 3, "epoch": 0.0, "loss/total": 5.25, "object/attention": 0.375}\n'
    (tmp_path / METRICS).write_text(old)
    read = [{"step": 3, "epoch": 0, "loss.total": 5.25, "objects.attention": 37.5}]
    assert read_metrics(tmp_path) == read


def test_a_run_that_logged_nothing_has_no_metrics(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []


def test_resuming_drops_the_steps_that_will_be_logged_again(tmp_path: Path) -> None:
    run_steps(tmp_path, 0, 7)
    run_steps(tmp_path, 4, 10)
    assert [record["step"] for record in read_metrics(tmp_path)] == list(range(10))
    assert sorted(path.name for path in tmp_path.iterdir()) == [CATALOG, METRICS]


def test_a_run_that_begins_anew_keeps_the_metrics_of_the_one_before(tmp_path: Path) -> None:
    for steps in (7, 5, 3):  # each replaces what was kept before
        before = (tmp_path / METRICS).read_text() if steps < 7 else None
        run_steps(tmp_path, 0, steps)
        assert [record["step"] for record in read_metrics(tmp_path)] == list(range(steps))
        kept = tmp_path / OLD_METRICS
        assert (kept.read_text() if kept.exists() else None) == before


def test_a_run_killed_before_its_first_record_leaves_older_metrics_alone(tmp_path: Path) -> None:
    for steps in (7, 0, 2):
        run_steps(tmp_path, 0, steps)
    assert (tmp_path / OLD_METRICS).read_text().count("\n") == 7
    assert len(read_metrics(tmp_path)) == 2


def test_a_line_cut_short_by_a_kill_is_forgotten(tmp_path: Path) -> None:
    run_steps(tmp_path, 0, 3)
    with (tmp_path / METRICS).open("a") as file:
        file.write('{"step": 3, "lo')
    assert len(read_metrics(tmp_path)) == 3
    run_steps(tmp_path, 3, 5)
    assert [record["step"] for record in read_metrics(tmp_path)] == list(range(5))


def test_a_spoilt_line_in_the_middle_is_named(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_text('{"step": 0}\nspoilt\n{"step": 2}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl has a line that is not JSON \('spoilt'\)"):
        read_metrics(tmp_path)


@pytest.mark.parametrize(
    ("junk", "why"),
    [
        (b"spoilt", "not JSON"),
        (b"\xff\xfe\x00", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1, 2]", "no record with a step"),
        (b"7", "no record with a step"),
        (b'{"loss.total": 3.0}', "no record with a step"),
        (b'{"step": "one"}', "no record with a step"),
    ],
)
def test_junk_is_one_line_that_names_it_and_a_resumed_run_loses_nothing(
    tmp_path: Path, junk: bytes, why: str
) -> None:
    spoilt = b'{"step": 0}\n' + junk + b'\n{"step": 2}\n'
    (tmp_path / METRICS).write_bytes(spoilt)
    with pytest.raises(UserError, match=rf"metrics\.jsonl has a line that is {why} ") as caught:
        run_steps(tmp_path, 2, 4)
    assert "line 2; remove this line from the file" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / METRICS).read_bytes() == spoilt


def test_an_empty_line_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_bytes(b'{"step": 0}\n\n{"step": 1}\n')
    assert [record["step"] for record in read_metrics(tmp_path)] == [0, 1]


def test_every_line_is_strict_json_even_when_a_number_is_not_finite(tmp_path: Path) -> None:
    with Monitor(tmp_path, QUIET, total_steps=1, console=pipe()) as monitor:
        wild = [number("a.loss", math.nan), number("a.norm", math.inf), number("a.lr", 0.1)]
        monitor.log(*wild, step=0, epoch=0)
    record = json.loads((tmp_path / METRICS).read_text(), parse_constant=pytest.fail)
    del record["time"]
    assert record == {
        "step": 0,
        "epoch": 0,
        "a.loss": None,
        "a.norm": None,
        "a.lr": 0.1,
    }


def test_tensorboard_gets_the_same_numbers_and_forgets_on_resume(tmp_path: Path) -> None:
    config = MonitorConfig()
    run_steps(tmp_path, 0, 7, config)
    run_steps(tmp_path, 4, 10, config)
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert board.Tags()["scalars"] == ["epoch", "loss.total", "a.lr"]
    points = [(event.step, event.value) for event in board.Scalars("loss.total")]
    assert points == [(step, pytest.approx(step / 10)) for step in range(10)]


def test_a_tracker_that_fails_costs_one_warning_and_no_metrics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "tensorboard").touch()  # where a folder should be
    run_steps(tmp_path, 0, 10, MonitorConfig())
    (warning,) = caplog.messages
    assert warning.startswith("TensorBoard failed (File exists) and gets no more metrics")
    assert [record["step"] for record in read_metrics(tmp_path)] == list(range(10))


def test_a_full_disk_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Monitor(tmp_path, QUIET, total_steps=1, console=pipe()) as monitor:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # no file may grow
        try:
            with pytest.raises(UserError, match=r"metrics\.jsonl: .*; make room") as caught:
                monitor.log(number("loss.total", 1.0), step=0, epoch=0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert len(read_metrics(tmp_path)) == 1  # what was held back is written once there is room


def test_a_run_directory_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    monitor = Monitor(tmp_path / "file" / "run", QUIET, total_steps=1, console=pipe())
    with pytest.raises(UserError, match=r"cannot write .*file.*choose another output folder"):
        monitor.__enter__()


def test_metrics_are_due_every_few_steps_and_at_the_last(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, MonitorConfig(log_every_steps=4), total_steps=10, console=pipe())
    assert [step for step in range(10) if monitor.due(step)] == [0, 4, 8, 9]


def test_a_terminal_shows_a_bar_with_loss_speed_time_left_and_waiting(tmp_path: Path) -> None:
    console = terminal()
    with Monitor(tmp_path, QUIET, total_steps=10, start_step=4, console=console) as monitor:
        monitor.progress(6, loss=2.5, images_per_second=120.0, waiting_share=0.1)
        monitor.progress(7, loss=2.345678, images_per_second=123.45, waiting_share=0.081)
        monitor.message("k-NN 12 % [not markup]")
    for part in ("7/10", "loss 2.3457", "123.5 img/s", "0:00:00 left", "8% waiting for data"):
        assert part in shown(console)
    assert "k-NN 12 % [not markup]" in shown(console)


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_a_narrow_terminal_shows_count_loss_speed_and_time_left_on_one_line(
    tmp_path: Path, width: int
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    with Monitor(tmp_path, QUIET, total_steps=60_000, start_step=4, console=console) as monitor:
        monitor.progress(6, loss=2.5, images_per_second=120.0, waiting_share=0.1)
        monitor.progress(1234, loss=2.345678, images_per_second=123.45, waiting_share=0.081)
    last = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown(console)).rstrip().rpartition("\n")[2]
    line = last.rpartition("\r")[2]
    assert len(line) <= width
    assert line.startswith("1234/60000 ")
    if width >= 40:
        loss, speed, left = r"2\.34\d+", r"123(\.\d)?( img)?/s", r"0:\d\d:\d\d"
        assert re.search(rf"{loss} +{speed} +{left}", line), line


def test_a_pipe_gets_a_plain_line_now_and_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    console = pipe()
    config = MonitorConfig(tensorboard=False, line_every_seconds=3600)
    with (
        caplog.at_level(logging.INFO, "attmask.monitor"),
        Monitor(tmp_path, config, total_steps=5, console=console) as monitor,
    ):
        for step in range(1, 6):
            monitor.progress(step, loss=1.0, images_per_second=10.0, waiting_share=0.0)
        monitor.message("done")
    first, last, message = caplog.messages
    assert first.startswith("step 1 of 5  loss 1.0000  10.0 img/s")
    assert last.startswith("step 5 of 5")
    assert message == "done"
    assert shown(console) == ""


def test_every_setting_may_change_when_a_run_is_resumed() -> None:
    for field in MonitorConfig.model_fields.values():
        assert isinstance(field.json_schema_extra, dict)
        assert field.json_schema_extra["operational"]
