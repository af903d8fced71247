"""Runs of several processes end with the weights of one, however often they stop in between."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from attmask.data.synthetic import write_folder
from tests.process_runs import STOPPED_AFTER, train
from tests.processes import ROOT, run_group
from tests.runs import last_checkpoint, same_tensors

COUNTS = pytest.mark.parametrize("count", [2, pytest.param(4, marks=pytest.mark.slow)])
ENGINES = pytest.mark.parametrize("engine", ["ddp", "fsdp"])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_folder(folder, train=48, val=10, size=32, seed=0)
    return folder


@pytest.fixture(scope="module")
def alone(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process, whole, and one that was stopped."""
    folder = tmp_path_factory.mktemp("alone")
    assert train(images, folder / "whole").finished
    assert not train(images, folder / "stopped", stop_after=STOPPED_AFTER).finished
    return folder


@pytest.fixture(scope="module")
def runs(
    images: Path, alone: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int], Path]:
    """The runs of so many processes, made in one launch."""
    made: dict[int, Path] = {}

    def make(count: int) -> Path:
        if count not in made:
            folder = tmp_path_factory.mktemp(f"runs-{count}")
            for engine in ("ddp", "fsdp"):
                shutil.copytree(alone / "stopped", folder / f"one-{engine}")
            run_group([ROOT / "tests" / "process_runs.py", images, folder], count, seconds=500)
            made[count] = folder
        return made[count]

    return make


@COUNTS
@ENGINES
def test_a_run_of_several_processes_ends_with_the_weights_of_one(
    engine: str, count: int, runs: Callable[[int], Path], alone: Path
) -> None:
    assert_near(runs(count) / engine, alone / "whole")


@COUNTS
@ENGINES
def test_a_stopped_run_ends_with_the_same_bits_on_the_same_number_of_processes(
    engine: str, count: int, runs: Callable[[int], Path]
) -> None:
    folder = runs(count)
    whole, again = (last_checkpoint(folder / name) for name in (engine, f"{engine}-again"))
    assert same_tensors(whole, again)


@COUNTS
@ENGINES
def test_a_checkpoint_of_one_engine_is_resumed_by_the_other(
    engine: str, count: int, runs: Callable[[int], Path], alone: Path
) -> None:
    assert_near(runs(count) / f"{engine}-switched", alone / "whole")


@COUNTS
@ENGINES
def test_a_checkpoint_of_one_process_is_resumed_by_several(
    engine: str, count: int, runs: Callable[[int], Path], alone: Path
) -> None:
    assert_near(runs(count) / f"one-{engine}", alone / "whole")


@COUNTS
@ENGINES
def test_a_checkpoint_of_several_processes_is_resumed_by_one(
    engine: str,
    count: int,
    runs: Callable[[int], Path],
    images: Path,
    alone: Path,
    tmp_path: Path,
) -> None:
    shutil.copytree(runs(count) / f"{engine}-stopped", tmp_path / "run")
    assert train(images, tmp_path / "run").finished
    assert_near(tmp_path / "run", alone / "whole")


@pytest.mark.slow
@ENGINES
def test_a_checkpoint_of_four_processes_is_resumed_by_two(
    engine: str, runs: Callable[[int], Path], images: Path, alone: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs(4) / f"{engine}-stopped", tmp_path / f"one-{engine}")
    run_group([ROOT / "tests" / "process_runs.py", images, tmp_path], 2, seconds=500)
    assert_near(tmp_path / f"one-{engine}", alone / "whole")


@ENGINES
def test_a_checkpoint_is_the_same_whatever_wrote_it(
    engine: str, runs: Callable[[int], Path], alone: Path
) -> None:
    ours, theirs = last_checkpoint(runs(2) / engine), last_checkpoint(alone / "whole")
    assert ours.info["fingerprint"] == theirs.info["fingerprint"]
    for group in ("weights", "optimizer"):
        shapes = [{n: t.shape for n, t in c.tensors[group].items()} for c in (ours, theirs)]
        assert shapes[0] == shapes[1]


def assert_near(ours: Path, theirs: Path) -> None:
    """The same but for rounding, which AdamW makes a whole step of where the gradient is zero."""
    a, b = last_checkpoint(ours), last_checkpoint(theirs)
    assert a.step == b.step
    for name, tensor in b.tensors["weights"].items():
        off = (a.tensors["weights"][name] - tensor).abs()
        if name.endswith("qkv.bias"):  # keys: attention does not depend on it
            width = len(off) // 3
            off[width : 2 * width] = 0
        assert off.max() < 1e-5, name
    moments = a.tensors["optimizer"]
    for name, tensor in b.tensors["optimizer"].items():
        torch.testing.assert_close(moments[name], tensor, rtol=0, atol=1e-5, msg=name)
