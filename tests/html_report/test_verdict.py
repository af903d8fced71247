"""The verdict follows from the log, the status and the baselines of a run."""

from dataclasses import replace
from typing import Any

import pytest

from attmask.html_report.verdict import gain, health, learning, verdict, warnings
from attmask.run_status import Status

WELL = Status(
    run="runs/a",
    state="finished",
    step=100,
    steps=100,
    epoch=9,
    epochs=10,
    loss=5.0,
    images_per_second=10.0,
    seconds_left=0.0,
    skipped_steps=0,
    went_back=0,
    findings=(),
    error=None,
    host=None,
    pid=None,
    user=None,
    since=None,
    processes=1,
    seconds_since_heartbeat=None,
    seconds_since_step=None,
    checkpoint=None,
    checkpoint_step=None,
    seconds_since_checkpoint=None,
)
PIXELS = {"chance": 10.0, "raw pixels": 48.1}


def log_of(losses: list[float], **evaluations: list[float]) -> list[dict[str, Any]]:
    steps = [
        {"step": i, "epoch": i // 10, "loss.total": loss, "health.feature_rank": 20.0}
        for i, loss in enumerate(losses)
    ]
    count = max((len(values) for values in evaluations.values()), default=0)
    measured = [
        {"step": 10 * i, "epoch": i}
        | {key.replace("__", "."): values[i] for key, values in evaluations.items()}
        for i in range(count)
    ]
    return [*measured[:1], *steps, *measured[1:]]


FALLING = [8.0 - 0.02 * i for i in range(100)]
LEVEL = [8.0 - min(2.0, 0.05 * i) for i in range(100)]


def test_a_loss_that_falls_is_learning_and_the_answer_has_both_ends() -> None:
    proof = learning(log_of(FALLING))
    assert proof.level == "good"
    assert "from 7.960 to 6.060 (24 %)" in proof.answer
    assert "still falling" in proof.answer
    assert "levelled off" in learning(log_of(LEVEL)).answer


@pytest.mark.parametrize(
    ("losses", "level"),
    [
        ([8.0] * 100, "bad"),
        ([8.0 + 0.02 * i for i in range(100)], "bad"),
        ([8.0, 7.0], "unknown"),
        ([8.0 - 0.05 * i for i in range(80)] + [4.0 + 0.02 * i for i in range(20)], "fair"),
    ],
)
def test_other_losses_are_named_for_what_they_are(losses: list[float], level: str) -> None:
    assert learning(log_of(losses)).level == level


def test_a_rising_loss_is_not_called_bad_while_accuracy_rises() -> None:
    rising = [8.0 + 0.02 * i for i in range(100)]
    proof = learning(log_of(rising, knn__top1=[31.8, 40.0, 57.0]))
    assert proof.level == "fair"
    assert "risen by 25.2 points" in proof.answer
    assert learning(log_of(rising, knn__top1=[31.8, 32.0])).level == "bad"


def test_a_fine_tuning_is_judged_by_the_measure_that_selects_its_network() -> None:
    records = log_of(FALLING, classify__top1=[3.0, 61.0, 60.0])
    found = verdict(records, WELL, {})
    assert found["level"] == "good"
    assert "it has gained 58.0 points" in found["sentence"]
    assert "61.0 % at its best, epoch 1" in found["proofs"][2]["answer"]
    assert gain(log_of(FALLING, segment__miou=[30.0, 30.5]), {}).level == "fair"
    assert gain(log_of(FALLING, detect__box_ap=[1.0]), {}).level == "unknown"


def test_gains_are_points_above_the_untrained_network_and_raw_pixels() -> None:
    proof = gain(log_of(FALLING, knn__top1=[31.8, 40.0, 57.0]), PIXELS)
    assert proof.level == "good"
    assert "57.0 %" in proof.answer
    assert "25.2 points above untrained (31.8 %)" in proof.answer
    assert "8.9 points above raw pixels (48.1 %)" in proof.answer


@pytest.mark.parametrize(
    ("accuracies", "level"),
    [([31.8, 40.0], "fair"), ([31.8, 31.9], "fair"), ([60.0, 50.5], "bad"), ([31.8], "unknown")],
)
def test_an_accuracy_below_pixels_or_the_start_is_not_called_good(
    accuracies: list[float], level: str
) -> None:
    assert gain(log_of(FALLING, knn__top1=accuracies), PIXELS).level == level


def test_without_labels_alignment_speaks_but_is_not_called_good() -> None:
    proof = gain(log_of(FALLING, label_free__alignment=[0.26, 0.10]), {})
    assert (proof.level, proof.metric) == ("fair", "label_free.alignment")
    assert gain(log_of(FALLING), {}).level == "unknown"


def test_only_what_was_compared_is_said() -> None:
    sentence = verdict(log_of(FALLING, knn__top1=[31.8, 57.0]), WELL, {})["sentence"]
    assert sentence.endswith("better than those of an untrained network.")
    assert learning(log_of([0.0] * 100)).level == "bad"


def test_findings_and_bad_ends_are_warnings_with_a_reason() -> None:
    line = "the teacher's targets are uniform; lower schedule.cls_temperature (now 0.04)"
    ill = replace(WELL, state="killed", findings=(line,), skipped_steps=3, went_back=1)
    found = warnings(ill)
    assert [each["level"] for each in found] == ["bad", "bad", "fair", "fair"]
    assert found[1]["text"] == "the teacher's targets are uniform"
    assert found[1]["reason"] == "lower schedule.cls_temperature (now 0.04)"
    assert "3 steps skipped" in found[3]["text"]
    assert all(each["reason"] for each in found)
    assert health(log_of(FALLING), ill).level == "bad"
    assert health(log_of(FALLING), replace(WELL, skipped_steps=1)).level == "fair"


def test_the_sentence_sums_up_the_three_proofs() -> None:
    records = log_of(FALLING, knn__top1=[31.8, 40.0, 57.0])
    good = verdict(records, WELL, PIXELS)
    assert good["level"] == "good"
    assert good["sentence"].startswith("This run is good: it learns, it is healthy")
    assert len(good["proofs"]) == 3
    running = verdict(records, replace(WELL, state="training"), PIXELS)
    assert "so far" in running["sentence"]
    bad = verdict(log_of([8.0] * 100, knn__top1=[31.8, 32.0]), WELL, PIXELS)
    assert (bad["level"], "does not learn" in bad["sentence"]) == ("bad", True)
    assert verdict([], WELL, {})["level"] == "unknown"
