from typing import Any

from attmask.evaluation.reporting.old_card import metrics_of_numbers
from attmask.metric import Metric


def old(kind: str, numbers: dict[str, float], task: str = "mine", **details: Any) -> list[Metric]:
    document = {"task": task, "protocol": {"kind": kind}, "numbers": numbers, "details": details}
    return metrics_of_numbers(document)


def test_numbers_of_an_unknown_protocol_keep_their_names_and_have_no_unit() -> None:
    numbers = {"top-1": 50.0, "3 best, in all": 7.0, "3 best, in all, deviation": 0.5}
    assert old("NearestMean", numbers, task="nearest-mean") == [
        Metric("nearest_mean.top_1", 50.0, "", None, title="top-1"),
        Metric("nearest_mean.n3_best_in_all", 7.0, "", None, 0.5, "3 best, in all"),
    ]


def test_a_deviation_of_nothing_stays_a_number() -> None:
    assert [m.key for m in old("Own", {"x, deviation": 1.0}, task="own")] == ["own.x_deviation"]


def test_a_number_that_a_known_protocol_never_had_is_kept_too() -> None:
    assert old("Knn", {"surprise": 1.0}, task="knn") == [
        Metric("knn.surprise", 1.0, "", None, title="surprise")
    ]
