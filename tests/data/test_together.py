import os
import subprocess
import sys
from pathlib import Path

import pytest

from attmask import distributed
from attmask.data import together
from attmask.data.contents import fingerprint
from attmask.data.sources import open_images
from attmask.data.stores.index import FILE
from attmask.data.together import open_together
from attmask.errors import UserError
from tests.data.stores.test_index import settle
from tests.sources import names, touch

WORKER = """
import os, sys, torch.distributed as dist
from pathlib import Path
from attmask.data import together
from attmask.data.contents import fingerprint
from attmask.errors import UserError

rank, root = int(sys.argv[1]), Path(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{root}/store", rank=rank, world_size=3)
opened = together.open_images

def try_it(data, run, local_rank):
    def noting(*given, **settings):
        images = opened(*given, **settings)
        ways.append("opened" if images.found is None else "listed")
        return images
    ways, together.open_images = [], noting
    os.environ["LOCAL_RANK"] = str(local_rank)
    try:
        train = together.open_together(root / data, index=root / run).train
        return f"{' '.join(ways)} {train.listing.folder is not None} {fingerprint(train)[:8]}"
    except UserError as error:
        return str(error)

print(try_it("data", "shared/run", rank))
print(try_it("data", "here/run" if rank == 0 else "there/run", max(0, rank - 1)))
print(try_it("empty", "other/run", rank))
dist.destroy_process_group()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = touch(tmp_path / "data", "a/1.jpg", "b/2.jpg")
    settle(root)
    return root


def test_a_machine_lists_once_and_an_error_is_raised_in_all_processes(
    tmp_path: Path, data: Path
) -> None:
    (tmp_path / "empty").mkdir()
    known = {**os.environ, "PYTHONPATH": str(Path(distributed.__file__).parents[1])}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(rank), str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**known, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(3)
    ]
    said = [worker.communicate(timeout=120)[0].splitlines() for worker in workers]
    assert [len(lines) for lines in said] == [3, 3, 3], said
    shared, apart, empty = ([lines[turn] for lines in said] for turn in range(3))
    digest = fingerprint(open_images(data).train)[:8]
    # On a shared disk the main process alone lists.
    ways = ["listed", "opened", "opened"]
    assert shared == [f"{way} True {digest}" for way in ways]
    # A machine without the run's folder: its first process lists for the second.
    ways = ["listed", "listed", "opened"]
    assert apart == [f"{way} True {digest}" for way in ways]
    assert empty[0].startswith(f"no images in {tmp_path / 'empty'}")
    assert empty == [empty[0]] * 3


def test_a_single_process_writes_nothing_but_the_index_of_many_images(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    assert names(open_together(data, index=run).train) == ["a/1.jpg", "b/2.jpg"]
    assert not run.exists()
    monkeypatch.setattr(together, "LARGE", 1)
    many = open_together(data, index=run)
    assert many.train.listing is not None
    assert (many.found, many.train.listing.folder) == (None, run)
    assert [file.name for file in run.iterdir()] == [FILE]
    with pytest.raises(UserError, match="there is no"):
        open_together(tmp_path / "none", index=run)


def test_the_index_of_other_images_is_left_alone(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "LARGE", 1)
    open_together(data, index=tmp_path / "run")
    before = (tmp_path / "run" / FILE).read_bytes()
    others = touch(tmp_path / "others", "1.jpg", "2.jpg", "3.jpg")
    settle(others)
    assert len(open_together(others, index=tmp_path / "run").train) == 3
    assert (tmp_path / "run" / FILE).read_bytes() == before
