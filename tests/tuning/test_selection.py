"""Which evaluation was the best, and when training ends."""

from attmask.tuning.selection import (
    Evaluation,
    best_of,
    evaluations,
    is_exhausted,
    still_kept,
)

FOUND = [Evaluation(0, 10.0), Evaluation(1, 30.0), Evaluation(2, 30.0), Evaluation(3, 20.0)]


def test_the_best_is_the_first_of_equals() -> None:
    assert best_of(FOUND) == Evaluation(1, 30.0)


def test_training_ends_after_as_many_evaluations_without_a_gain() -> None:
    assert is_exhausted(FOUND, 2)
    assert not is_exhausted(FOUND, 3)
    assert not is_exhausted(FOUND, None)
    assert not is_exhausted([], 1)
    assert not is_exhausted([*FOUND, Evaluation(4, 31.0)], 1)


def test_an_untrained_network_is_never_the_best_of_several() -> None:
    assert best_of([Evaluation(0, 50.0), Evaluation(1, 10.0)]) == Evaluation(1, 10.0)
    assert best_of([Evaluation(0, 50.0)]) == Evaluation(0, 50.0)


def test_a_run_that_was_made_longer_gets_another_chance() -> None:
    assert not is_exhausted(FOUND, 2, since=3)
    assert is_exhausted([*FOUND, Evaluation(4, 1.0), Evaluation(5, 2.0)], 2, since=3)


def test_evaluations_of_better_networks_that_are_lost_do_not_count() -> None:
    assert still_kept(FOUND, None) == []
    kept = Evaluation(3, 20.0)
    assert still_kept(FOUND, kept) == [Evaluation(0, 10.0), kept]
    assert still_kept(FOUND, Evaluation(1, 30.0)) == FOUND
    assert still_kept([], kept) == [kept]  # the log is lost, the network is not


def test_the_log_tells_the_evaluations_and_a_repeated_one_once() -> None:
    records = [
        {"step": 0, "epoch": 0, "x": 1.0},
        {"step": 1, "epoch": 0, "loss.total": 3.0},
        {"step": 9, "epoch": 1, "x": 2.0},
        {"step": 9, "epoch": 1, "x": 2.5},
    ]
    assert evaluations(records, "x") == [Evaluation(0, 1.0), Evaluation(1, 2.5)]
