"""Every command that reads images reads CIFAR and Flowers-102 as they are published."""

from collections.abc import Callable
from pathlib import Path

import pytest

import attmask
from attmask.cli import main
from tests.published import write_cifar10, write_cifar100, write_flowers
from tests.runs import SHORT


def _flowers(folder: Path) -> object:
    splits = {"trnid": range(1, 21), "valid": range(21, 25), "tstid": range(25, 31)}
    return write_flowers(folder, [1 + n % 2 for n in range(30)], splits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "splits"),
    [
        (write_cifar10, {"train": 20, "test": 4}),
        (lambda folder: write_cifar100(folder, rows=20), {"train": 20, "test": 20}),
        (_flowers, {"train": 20, "val": 4}),
    ],
    ids=["cifar10", "cifar100", "flowers"],
)
def test_a_run_trains_resumes_and_is_measured_on_it(
    write: Callable[[Path], object],
    splits: dict[str, int],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / "images")
    run = tmp_path / "run"
    words = ["pretrain", str(tmp_path / "images"), "--recipe", "tiny", "--out", str(run)]
    settings = [*SHORT, "train.workers=1", "train.batch_size=10", "schedule.epochs=1"]
    assert main([*words, *settings]) == 0
    assert main([*words, *settings]) == 0  # finished
    assert capsys.readouterr().out.count("done, 2 steps") == 2
    (card,) = attmask.evaluate(
        run, "knn", data=tmp_path / "images", overrides=["ks=[1]"], workers=1
    )
    assert card.images == splits
    audit = attmask.inspect(tmp_path / "images", recipe="tiny")
    assert audit.to_dict()["images"]["train"] == 20
