"""Fine-tuning on two real processes: the network of one, with DDP and with FSDP2."""

import os
import signal
from pathlib import Path

import pytest
import torch

from attmask import checkpoint
from attmask.cli import main
from attmask.data.synthetic import write_folder
from attmask.tuning.results import Results
from tests.processes import free_port, wait_for
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

# timm mixes images within one process, so nothing is mixed here.
SETTINGS = (
    *SHORT,
    "train.precision=fp32",
    "schedule.epochs=3",
    "schedule.freeze_backbone_epochs=1",
    "schedule.lr=4e-3",
    "network.drop_path=0.2",
    "augment.erasing=0.5",
    "optim.clip=1",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    write_folder(folder, train=40, val=13, size=32, seed=0)
    return folder


@pytest.fixture(scope="module")
def start(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("start") / "run"
    few = (*SHORT, "schedule.epochs=1", "monitor.knn_every_epochs=0")
    assert main(["pretrain", str(images), "--recipe", "tiny", "--out", str(run), *few]) == 0
    return run


@pytest.fixture(scope="module")
def alone(images: Path, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    assert main(["finetune", str(start), str(images), "--out", str(run), *SETTINGS]) == 0
    return run


def launch(start: Path, images: Path, run: Path, said: Path, *settings: str) -> list[Forked]:
    """The command in two processes that were launched together."""
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": "2"}
    common["MASTER_PORT"] = str(free_port())
    words = ["finetune", str(start), str(images), "--out", str(run), *SETTINGS, *settings]
    return [
        Forked(
            said / f"said-{run.name}-{rank}",
            *words,
            environment={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(2)
    ]


def in_two(start: Path, images: Path, run: Path, said: Path, *settings: str) -> None:
    """The same, to its end."""
    for process in launch(start, images, run, said, *settings):
        status, text = process.finish()
        assert status == 0, text


@pytest.mark.parametrize(
    "settings",
    [(), ("train.sharding=fsdp",), ("network.token=gap",), ("train.accumulate=2",)],
    ids=["ddp", "fsdp", "gap", "micro-batches"],
)
def test_two_processes_train_the_network_of_one(
    settings: tuple[str, ...], images: Path, start: Path, alone: Path, tmp_path: Path
) -> None:
    of_one = alone
    if changing := [each for each in settings if each.startswith("network.")]:
        of_one = tmp_path / "one"
        words = ["finetune", str(start), str(images), "--out", str(of_one), *SETTINGS, *changing]
        assert main(words) == 0
    in_two(start, images, tmp_path / "two", tmp_path, *settings)
    one, two = last_checkpoint(of_one), last_checkpoint(tmp_path / "two")
    assert one.step == two.step == 15
    for name, weights in one.tensors["weights"].items():
        torch.testing.assert_close(
            two.tensors["weights"][name], weights, rtol=1e-4, atol=2e-5, msg=name
        )
    results = Results.read(of_one), Results.read(tmp_path / "two")
    assert results[0] is not None
    assert results[0] == results[1]


@pytest.mark.slow
def test_two_processes_that_are_killed_go_on_to_the_same_bits(
    images: Path, start: Path, tmp_path: Path
) -> None:
    # Each process mixes its own images; with a worker, see test_finetune.
    settings = ("augment.mixup=0.8", "augment.cutmix=1", "train.workers=1")
    whole, part = tmp_path / "whole", tmp_path / "part"
    in_two(start, images, whole, tmp_path, *settings)
    often = (*settings, "checkpoint.every_minutes=0", "train.timeout_minutes=0.2")
    group = launch(start, images, part, tmp_path, *often)
    wait_for(lambda: checkpoint.newest(part / "checkpoints") is not None, "no checkpoint")
    for process in group:
        os.kill(process.pid, signal.SIGKILL)
        process.finish()
    assert last_checkpoint(part).step < 15
    in_two(start, images, part, tmp_path, *often)
    assert same_tensors(last_checkpoint(whole), last_checkpoint(part))
