"""Which evaluation was the best, and when training ends."""

from attmask.finetuning.selection import Evaluation, best_of, evaluations, is_exhausted

FOUND = [Evaluation(0, 10.0), Evaluation(1, 30.0), Evaluation(2, 30.0), Evaluation(3, 20.0)]


def test_the_best_is_the_first_of_equals() -> None:
    assert best_of(FOUND) == Evaluation(1, 30.0)


def test_training_ends_after_as_many_evaluations_without_a_gain() -> None:
    assert is_exhausted(FOUND, 2)
    assert not is_exhausted(FOUND, 3)
    assert not is_exhausted(FOUND, None)
    assert not is_exhausted([], 1)
    assert not is_exhausted([*FOUND, Evaluation(4, 31.0)], 1)


def test_the_log_tells_the_evaluations_and_a_repeated_one_once() -> None:
    records = [
        {"step": 0, "epoch": 0, "x": 1.0},
        {"step": 1, "epoch": 0, "loss.total": 3.0},
        {"step": 9, "epoch": 1, "x": 2.0},
        {"step": 9, "epoch": 1, "x": 2.5},
    ]
    assert evaluations(records, "x") == [Evaluation(0, 1.0), Evaluation(1, 2.5)]
