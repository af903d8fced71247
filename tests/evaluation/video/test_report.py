import numpy as np
import pytest

from attmask.evaluation.video.report import Scores, VideoReport


def scores(name: str, *j: list[float], shift: float = 0.1) -> Scores:
    """J as given, and F that is higher by the shift."""
    values = np.array(j)
    frames = tuple(f"{i + 1:05d}" for i in range(values.shape[1]))
    return Scores(name, frames, tuple(range(1, len(j) + 1)), values, values + shift)


@pytest.fixture
def report() -> VideoReport:
    ball = scores("ball", [0.8, 0.6, 0.4, 0.2], [0.9, 0.9, 0.9, 0.9])
    car = scores("car", [0.1, 0.1, 0.3])
    return VideoReport([ball, car], threshold=0.5, bins=2)


def test_every_object_counts_the_same(report: VideoReport) -> None:
    found = {metric.key: metric.value for metric in report.metrics()}
    mean = 100 * (0.5 + 0.9 + 0.5 / 3) / 3
    assert found["video.j_mean"] == pytest.approx(mean)
    assert found["video.f_mean"] == pytest.approx(mean + 10)
    assert found["video.j_and_f"] == pytest.approx(mean + 5)
    assert found["video.j_recall"] == pytest.approx(100 * (0.5 + 1 + 0) / 3)
    assert found["video.objects"] == 3


def test_decay_is_the_only_measure_where_less_is_better(report: VideoReport) -> None:
    lower = [metric.key for metric in report.metrics() if metric.higher_is_better is False]
    assert lower == ["video.j_decay", "video.f_decay"]


def test_the_worst_frames_come_first(report: VideoReport) -> None:
    found = report.worst_frames(3)
    assert [(each["sequence"], each["frame"]) for each in found] == [
        ("car", "00001"),
        ("car", "00002"),
        ("car", "00003"),
    ]
    assert found[0]["j"] == 10
    assert report.notes()[0].startswith("worst frames: car/00001 (J 10.0, F 20.0), car/00002")


def test_details_have_each_object_and_the_course(report: VideoReport) -> None:
    details = report.details(worst=1)
    assert [(each["sequence"], each["object"]) for each in details["objects"]] == [
        ("ball", 1),
        ("ball", 2),
        ("car", 1),
    ]
    assert details["objects"][0]["j_mean"] == 50
    assert len(details["worst frames"]) == 1
    (start, first), *_, (end, last) = details["course"]
    assert (start, end) == (0, 100)
    assert first == pytest.approx(100 * (0.8 + 0.9 + 0.1) / 3 + 5)
    assert last == pytest.approx(100 * (0.2 + 0.9 + 0.3) / 3 + 5)


def test_the_median_sequence_is_shown() -> None:
    three = [scores(name, [value, value]) for name, value in (("a", 0.9), ("b", 0.1), ("c", 0.5))]
    assert VideoReport(three, 0.5, 4).median_sequence() == "c"
    assert VideoReport(three[:2], 0.5, 4).median_sequence() == "b"
