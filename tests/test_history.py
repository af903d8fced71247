"""The record of a run: written at once, read by later starts, never a reason to fail."""

from pathlib import Path

import pytest

from attmask.history import RUN, Extension, History, Return, now, read_history


def test_what_is_written_is_read(tmp_path: Path) -> None:
    extension = Extension(step=12, epochs_before=2, epochs=4, time=now())
    back = Return(from_step=9, to_step=6, time=now())
    written = (
        History()
        .with_changes(tmp_path, data="/images")
        .with_changes(tmp_path, extensions=(extension,))
        .with_changes(tmp_path, returns=(back,))
    )
    assert read_history(tmp_path) == written
    assert written.data == "/images"
    assert written.extensions == (extension,)


@pytest.mark.parametrize(("times", "factor"), [(0, 1.0), (1, 0.5), (3, 0.125)])
def test_the_learning_rate_is_halved_each_time_a_run_goes_back(times: int, factor: float) -> None:
    back = Return(from_step=9, to_step=6, time=now())
    assert History(returns=(back,) * times).lr_factor == factor


def test_a_run_without_a_record_has_an_empty_one(tmp_path: Path) -> None:
    assert read_history(tmp_path) == History()


@pytest.mark.parametrize("junk", ["", "{", "[1]", '{"returns": 3}', '{"data": ["a"]}'])
def test_a_damaged_record_is_passed_over_with_a_line(
    tmp_path: Path, junk: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / RUN).write_text(junk)
    assert read_history(tmp_path) == History()
    assert f"{tmp_path / RUN} cannot be read" in caplog.text


def test_the_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    (tmp_path / RUN).write_text('{\n "data": "/images"\n}\n')
    assert read_history(tmp_path).data == "/images"
