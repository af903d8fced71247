"""A disk that fails in one process of a sharded run ends all, and the last checkpoint is whole."""

import errno
import os
from pathlib import Path

import pytest

from attmask import checkpoint
from tests.faults.shim import build
from tests.processes import ROOT, finish_group, run_group, start_group
from tests.runs import SHORT, last_checkpoint


def command(images: Path, run: Path) -> list[str]:
    return [
        *("pretrain", str(images), "--recipe", "tiny", "--out", str(run), *SHORT),
        *("train.sharding=fsdp", "checkpoint.every_minutes=0", "monitor.knn_every_epochs=0"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "number"), [(0, 60), (0, 90), (0, 121), (1, 0), (1, 9), (1, 22)])
def test_a_full_disk_in_one_process_ends_all_and_the_same_command_resumes(
    scenes: Path, tmp_path: Path, rank: int, number: int
) -> None:
    library, disk = build(tmp_path), tmp_path / "disk"
    disk.mkdir()
    words = command(scenes, disk / "run")
    script = ROOT / "tests" / "faults" / "watched_command.py"
    fault = [str(rank), str(number), str(errno.ENOSPC)]
    ended = finish_group(start_group([script, library, disk, *fault, *words], 2), 120)
    said = "\n".join(text for _, text in ended)
    assert all(status != 0 for status, _ in ended), said
    assert "Traceback" not in said, said
    lines = [line for line in said.splitlines() if line.startswith("attmask: ")]
    assert any(os.strerror(errno.ENOSPC) in line for line in lines), said
    for path in (disk / "run" / "checkpoints").glob("step-*"):
        checkpoint.verify(path)
    run_group(["-m", "attmask", *words], 2)
    assert last_checkpoint(disk / "run").step == 12
