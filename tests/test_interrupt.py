"""The first signal asks to stop, a second Ctrl-C stops, and the old handlers come back."""

import os
import signal
import threading

import pytest

from attmask.interrupt import stop_signals

STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1]


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_asks_to_stop_and_raises_nothing(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores one of them
    try:
        with stop_signals() as stopped:
            assert stopped() == 0
            os.kill(os.getpid(), number)
            assert stopped() == number
    finally:
        signal.signal(number, before)


def test_the_first_signal_is_the_reason() -> None:
    with stop_signals() as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGHUP)
        assert stopped() == signal.SIGTERM


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals() as stopped:
            os.kill(os.getpid(), signal.SIGHUP)
            assert stopped() == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_stops_at_once() -> None:
    with stop_signals():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_handlers_from_before_come_back_even_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(RuntimeError), stop_signals():
        raise RuntimeError
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_thread_that_is_not_the_main_one_may_train_too() -> None:
    answers: list[int] = []

    def train() -> None:
        with stop_signals() as stopped:
            answers.append(stopped())

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert answers == [0]
