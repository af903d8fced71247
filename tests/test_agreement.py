from pathlib import Path

import pytest
import torch

from attmask import distributed
from attmask.agreement import SharedError, Wishes, mean_metrics, require_same, together
from attmask.errors import UserError
from attmask.metric import Metric
from tests.groups import in_group


def test_alone_nothing_is_agreed_upon() -> None:
    with pytest.raises(UserError, match=r"^mine$") as caught, together():
        raise UserError("mine")
    assert not caught.value.in_all_processes
    assert Wishes().of_all(lambda: (True, False)) == (True, False)
    require_same("settings", 1, lambda a, b: "", "")
    metrics = (Metric("loss.total", 3.0, "nats", False, title="loss"),)
    assert mean_metrics(metrics) is metrics


def test_an_error_of_one_process_is_raised_by_all_and_said_once(tmp_path: Path) -> None:
    def member(rank: int) -> list[tuple[str, bool]]:
        seen = []
        for failing in ([1], [0, 1, 2], [0, 2], []):
            try:
                with together():
                    if rank in failing:
                        raise UserError(f"no disk on {rank}")
                seen.append(("fine", False))
            except SharedError as fault:
                seen.append((str(fault), fault.in_all_processes))
        return seen

    wanted = [
        ("process 1 of 3: no disk on 1", True),
        ("no disk on 0", True),
        ("no disk on 0", True),
        ("fine", False),
    ]
    assert in_group(3, tmp_path, member) == [wanted] * 3


def test_another_value_of_one_process_is_named_by_all(tmp_path: Path) -> None:
    def member(rank: int) -> str:
        require_same("seeds", 7, lambda other, main: "", "")
        with pytest.raises(SharedError) as caught:
            require_same(
                "seeds",
                3 if rank == 1 else 7,
                lambda other, main: f"{other}, there {main}",
                "use one",
            )
        return str(caught.value)

    wanted = "process 1 of 2 has other seeds than process 0 (3, there 7); use one"
    assert in_group(2, tmp_path, member) == [wanted] * 2


def test_a_wish_of_one_process_is_known_to_all_a_step_later(tmp_path: Path) -> None:
    def member(rank: int) -> list[tuple[int, ...]]:
        wishes, known = Wishes(), []
        for own in [(False, False), (rank == 1, False), (False, rank == 0), (False, False)]:
            known.append(wishes.of_all(lambda: (True, True)))
            wishes.send(*own)
        return known

    known = [(False, False), (False, False), (True, False), (False, True)]
    assert in_group(2, tmp_path, member) == [known] * 2


def test_the_metrics_of_a_step_are_means_over_processes(tmp_path: Path) -> None:
    def member(rank: int) -> list[float]:
        torch.set_num_threads(1)
        metrics = tuple(
            Metric(key, value + distributed.rank(), "nats", False, title=key)
            for key, value in (("loss.total", 3.0), ("loss.cls", 1.0))
        )
        return [metric.value for metric in mean_metrics(metrics)]

    assert in_group(2, tmp_path, member) == [[3.5, 1.5]] * 2
