"""Reports that are written while a run is trained."""

from pathlib import Path

import pytest

from attmask.html_report import on_the_way, snapshots
from attmask.html_report.on_the_way import REPORT, ReportsOnTheWay
from attmask.kinds import read_config
from attmask.run_config import override
from tests.html_report.reported_run import train
from tests.runs import last_checkpoint, same_tensors


def test_a_training_with_reports_has_the_same_bits_and_a_page_at_its_end(
    scenes: Path, tmp_path: Path
) -> None:
    plain = train(scenes, tmp_path / "plain")
    told = train(scenes, tmp_path / "told", "monitor.report_every_epochs=1")
    assert same_tensors(last_checkpoint(plain), last_checkpoint(told))
    assert not (plain / REPORT).exists()
    page = (told / REPORT).read_text()
    assert "is finished" not in page
    assert '"state":"finished"' in page
    epochs = [file.stem.partition("-")[2] for file in (told / snapshots.FOLDER).iterdir()]
    assert {"0.0000", "2.0000"} <= set(epochs)


def test_no_fault_of_a_report_ends_a_training(
    scenes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object, **__: object) -> Path:
        raise RuntimeError("something that nobody thought of")

    monkeypatch.setattr(on_the_way, "write_report", broken)
    run = train(scenes, tmp_path / "run", "monitor.report_every_epochs=1")
    assert last_checkpoint(run).step == 12
    assert "the report was not written" in caplog.text


def test_a_page_is_written_every_few_epochs_and_takes_a_small_part_of_the_time(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, epoch = [0.0], 0
    written: list[int] = []
    looked: list[int] = []
    config = override(
        read_config(run / "config.yaml"), ["monitor.report_every_epochs=5", "schedule.epochs=96"]
    )
    monkeypatch.setattr("attmask.html_report.on_the_way.time.monotonic", lambda: clock[0])
    reports = ReportsOnTheWay(run, config)

    def write(check: object) -> None:
        written.append(epoch)
        clock[0] += 10

    monkeypatch.setattr(reports, "_write", write)
    monkeypatch.setattr(reports, "_look", lambda check: looked.append(epoch))
    for epoch in range(97):
        reports(epoch, lambda: False)
        clock[0] += 20
    assert written == [5, 15, 25, 35, 45, 55, 65, 75, 85, 95], "200 seconds after 10"
    assert looked == [0, 4], "the pages take all of the time that reports may take"


def test_a_page_that_takes_too_long_is_made_without_pictures(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(on_the_way, "MOST_SECONDS", -1.0)
    config = override(read_config(run / "config.yaml"), ["monitor.report_every_epochs=1"])
    ReportsOnTheWay(run, config)(1, lambda: False)
    assert "it takes more than" in caplog.text
    assert "no pictures" in (run / REPORT).read_text()


def test_a_stop_ends_the_report_and_not_the_training(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = run / REPORT
    page.unlink(missing_ok=True)
    config = override(read_config(run / "config.yaml"), ["monitor.report_every_epochs=1"])
    with caplog.at_level("INFO"):
        ReportsOnTheWay(run, config)(1, lambda: True)
    assert "because the run is stopped" in caplog.text
    assert not page.exists()
