import logging
from pathlib import Path

import pytest

from attmask.metric import Metric
from attmask.metric_catalog import CATALOG, MetricCatalog, assumed, group_of, read_catalog

LOSS = Metric("loss.total", 1.0, "nats", False, title="loss")
KNN = Metric("knn.top1", 40.0, "%", True, title="top-1 accuracy")


def test_what_metrics_are_is_kept_beside_their_values(tmp_path: Path) -> None:
    catalog = MetricCatalog(tmp_path)
    catalog.add([LOSS])
    catalog.add([LOSS, KNN])
    found = read_catalog(tmp_path)
    assert list(found) == ["loss.total", "knn.top1"]
    assert (found["knn.top1"].unit, found["knn.top1"].higher_is_better) == ("%", True)
    assert found["loss.total"].title == "loss"


def test_the_file_is_written_only_when_a_metric_is_new(tmp_path: Path) -> None:
    MetricCatalog(tmp_path).add([LOSS])
    before = (tmp_path / CATALOG).stat().st_mtime_ns
    resumed = MetricCatalog(tmp_path)
    resumed.add([LOSS])
    assert (tmp_path / CATALOG).stat().st_mtime_ns == before
    resumed.add([KNN])
    assert set(read_catalog(tmp_path)) == {"loss.total", "knn.top1"}


def test_an_error_of_the_disk_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        MetricCatalog(tmp_path / "file").add([LOSS])
    assert "cannot write" in caplog.text


def test_a_log_without_a_catalog_is_understood_by_its_keys(tmp_path: Path) -> None:
    (tmp_path / CATALOG).write_text("[]")
    assert read_catalog(tmp_path) == {}
    assert (assumed("knn.top1").unit, assumed("knn.top1").higher_is_better) == ("%", True)
    assert assumed("health.kl").higher_is_better is None
    assert [group_of(key) for key in ("knn.top1", "loss.cls", "odd.one")] == [
        "accuracy",
        "loss",
        "other",
    ]
