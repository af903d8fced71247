import json
import logging
from pathlib import Path

import pytest

from attmask.run_baselines import BASELINES, keep_baselines, read_baselines


def test_baselines_are_measured_once_and_kept(tmp_path: Path) -> None:
    calls: list[int] = []

    def measure() -> dict[str, float]:
        calls.append(1)
        return {"chance": 10.0, "raw pixels": 48.1}

    keep_baselines(tmp_path, measure)
    keep_baselines(tmp_path, measure)
    assert len(calls) == 1
    assert read_baselines(tmp_path) == {"chance": 10.0, "raw pixels": 48.1}
    assert json.loads((tmp_path / BASELINES).read_text()) == read_baselines(tmp_path)


def test_images_without_labels_have_no_baselines(tmp_path: Path) -> None:
    keep_baselines(tmp_path, dict)
    assert list(tmp_path.iterdir()) == []
    assert read_baselines(tmp_path) == {}


@pytest.mark.parametrize("content", ["", "[1]", '{"chance": "x"}', "\0\0"])
def test_a_file_that_is_no_record_of_baselines_counts_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / BASELINES).write_text(content)
    assert read_baselines(tmp_path) == {}


def test_a_run_goes_on_where_they_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        keep_baselines(tmp_path / "file", lambda: {"chance": 10.0})
    assert "cannot write" in caplog.text
