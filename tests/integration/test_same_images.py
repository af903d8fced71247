"""The same pictures in a folder, a list, an array and a tar: the same training to the last bit."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import attmask
from attmask.data.config import DataConfig
from attmask.data.loader import Loader
from attmask.data.sources import open_images
from attmask.data.views import ViewsConfig
from attmask.monitor import read_metrics
from tests.runs import SHORT

COUNT = 24
QUICK = [*SHORT, "schedule.epochs=2", "monitor.log_every_steps=1"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("same") / "folder"
    chance = np.random.default_rng(0)
    for index in range(COUNT):
        file = root / f"class {index // 8}" / f"{index:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(file)
    return root


def as_list(folder: Path, out: Path) -> Path:
    rows = [f"{file},{file.parent.name}" for file in sorted(folder.rglob("*.png"))]
    made = out / "images.csv"
    made.write_text("\n".join(["path,label", *rows]))
    return made


def as_array(folder: Path, out: Path) -> Path:
    files = sorted(folder.rglob("*.png"))
    made = out / "images.npz"
    images = np.stack([np.asarray(Image.open(file)) for file in files])
    np.savez(made, images=images, labels=np.array([int(f.parent.name[-1]) for f in files]))
    return made


def as_tar(folder: Path, out: Path) -> Path:
    """Two shards in WebDataset's layout, in the order of the files."""
    files = sorted(folder.rglob("*.png"))
    shards = out / "shards"
    shards.mkdir()
    for number, part in enumerate((files[:10], files[10:])):
        with tarfile.open(shards / f"images-{number}.tar", "w") as tar:
            for file in part:
                for ending, data in (
                    ("png", file.read_bytes()),
                    ("cls", file.parent.name[-1].encode()),
                ):
                    member = tarfile.TarInfo(f"{file.stem}.{ending}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return shards


def curve(data: Path, run: Path) -> list[tuple[float, float]]:
    attmask.pretrain(data, recipe="tiny", out=run, overrides=QUICK)
    return [
        (record["loss.cls"], record["loss.patch"])
        for record in read_metrics(run)
        if "loss.cls" in record
    ]


@pytest.mark.parametrize("other", [as_list, as_array, as_tar])
def test_every_kind_of_source_gives_the_curve_of_the_folder(
    folder: Path, tmp_path: Path, other: Callable[[Path, Path], Path]
) -> None:
    expected = curve(folder, tmp_path / "run")
    assert len(expected) == 2 * COUNT // 8
    assert curve(other(folder, tmp_path), tmp_path / "other") == expected


def test_streamed_shards_show_each_image_once_an_epoch_in_another_order_each_time(
    folder: Path, tmp_path: Path
) -> None:
    source = open_images(as_tar(folder, tmp_path)).train
    config = ViewsConfig(global_size=16, local_size=8, local_crops=0)
    data = DataConfig(order="sequential")
    orders = []
    for workers in (0, 2):
        ours = Loader(source, data, config, batch_size=4, seed=0, workers=workers)
        shown = [[int(i) for batch in ours.epoch(e) for i in batch.samples] for e in (0, 1)]
        assert [sorted(epoch) for epoch in shown] == [list(range(COUNT))] * 2
        orders.append(shown)
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]
