import numpy as np
import pytest

from attmask.metric import Metric, best, check_unique, values_by_key


@pytest.mark.parametrize(
    "key",
    ["knn.top1", "knn.top1@10", "occlusion.top1@0.3", "linear_cached.top1_last", "a.b@1e-05"],
)
def test_a_key_is_protocol_dot_measure_and_maybe_a_parameter(key: str) -> None:
    assert Metric(key, 1.0, "%", True).key == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "top1",
        "knn/top1",
        "knn.",
        ".top1",
        "knn.top-1",
        "Knn.top1",
        "knn.top1@",
        "knn.1",
        "a.b c",
        "knn.top1@10@2",
        "knn.a.b",
        "knn.top1\n",
    ],
)
def test_what_is_no_key_is_refused_with_an_example(key: str) -> None:
    with pytest.raises(ValueError, match=r"is no key of a metric; use .* such as knn\.top1@10"):
        Metric(key, 1.0, "%", True)


def test_a_metric_without_a_title_is_called_by_its_key() -> None:
    assert Metric("knn.top1", 1.0, "%", True).title == "knn.top1"
    assert Metric("knn.top1", 1.0, "%", True, title="top-1").title == "top-1"


def test_a_value_of_another_library_becomes_a_plain_number() -> None:
    assert type(Metric("a.b", np.float64(0.5), "", None).value) is float


def test_two_metrics_of_one_key_are_refused() -> None:
    one, two = Metric("a.b", 1, "", None), Metric("a.c", 2, "", None)
    check_unique([one, two])
    with pytest.raises(ValueError, match=r"two metrics have the key a\.b"):
        check_unique([one, two, one])
    assert values_by_key([one, two]) == {"a.b": 1, "a.c": 2}


@pytest.mark.parametrize(
    ("higher_is_better", "expected"),
    [
        (True, [False, True, False, True]),
        (False, [True, False, False, False]),
        (None, [False] * 4),
    ],
)
def test_the_best_is_the_highest_or_the_lowest_or_none(
    higher_is_better: bool | None, expected: list[bool]
) -> None:
    metrics = [Metric("a.b", value, "", higher_is_better) for value in (1, 3, 2, 3)]
    assert best(metrics) == expected
    assert best([None, *metrics]) == [False, *expected]


def test_one_result_alone_is_not_the_best() -> None:
    assert best([Metric("a.b", 1, "", True), None]) == [False, False]
