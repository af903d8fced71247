import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image

from attmask.data.batch import Batch
from attmask.data.colours import recolour
from attmask.data.config import DataConfig
from attmask.data.cut import cut
from attmask.data.draws import draw
from attmask.data.loader import Loader
from attmask.data.quarantine import Quarantine
from attmask.data.source import Source, everything
from attmask.data.sources import open_images
from attmask.data.stores.files import Files
from attmask.data.views import ViewsConfig
from attmask.errors import UserError

SMALL = ViewsConfig(global_size=16, local_size=8, local_crops=2)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    root = tmp_path_factory.mktemp("images")
    chance = np.random.default_rng(0)
    for index in range(22):
        pixels = chance.integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / f"{index:02}.png")
    return open_images(root).train


def loader(
    source: Source,
    config: ViewsConfig = SMALL,
    *,
    batch_size: int = 4,
    seed: int = 7,
    workers: int = 0,
    data: DataConfig | None = None,
    quarantine: Quarantine | None = None,
    rank: int = 0,
    world: int = 1,
) -> Loader:
    return Loader(
        source,
        data or DataConfig(),
        config,
        batch_size=batch_size,
        seed=seed,
        workers=workers,
        quarantine=quarantine,
        rank=rank,
        world=world,
    )


def files(root: Path, names: list[str]) -> Source:
    return everything(root, Files(root, names))


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a.samples, b.samples)
        and torch.equal(a.views.globals, b.views.globals)
        and torch.equal(a.views.locals, b.views.locals)
        for a, b in zip(first, second, strict=True)
    )


def samples(batches: list[Batch]) -> list[int]:
    return [int(sample) for batch in batches for sample in batch.samples]


def test_an_epoch_shows_each_image_at_most_once_and_drops_the_incomplete_batch(
    source: Source,
) -> None:
    ours = loader(source)
    batches = list(ours.epoch(0))
    assert ours.steps_per_epoch == len(batches) == 5
    assert len(set(samples(batches))) == 20
    assert all(batch.views.globals.shape == (2, 4, 3, 16, 16) for batch in batches)
    assert all(batch.views.locals.shape == (2, 4, 3, 8, 8) for batch in batches)
    assert batches[0].views.globals.dtype == torch.uint8


def test_the_order_and_the_views_change_with_the_epoch_and_the_seed(source: Source) -> None:
    first = list(loader(source).epoch(0))
    assert samples(list(loader(source).epoch(1))) != samples(first)
    assert samples(list(loader(source, seed=8).epoch(0))) != samples(first)
    assert same(list(loader(source).epoch(0)), first)


@pytest.mark.parametrize("colours_on", ["workers", "device"])
def test_a_batch_holds_the_views_that_its_counters_draw(
    source: Source, colours_on: Literal["workers", "device"]
) -> None:
    config = SMALL.model_copy(update={"colours_on": colours_on})
    batch = next(iter(loader(source, config).epoch(3)))
    views = batch.on(torch.device("cpu"))
    sample = int(batch.samples[2])
    image = np.array(Image.open(source.place(sample)))
    for view in range(4):
        chosen = draw(SMALL, (24, 20), seed=7, epoch=3, sample=sample, view=view)
        row = views.globals[view] if view < 2 else views.locals[view - 2]
        expected = recolour(cut(image, (24, 20), chosen), chosen.look)
        expected = expected[:, ::-1] if chosen.flip else expected
        apart = np.abs(row[2].permute(1, 2, 0).numpy().astype(int) - expected)
        assert apart.mean() <= (0 if colours_on == "workers" else 0.1)


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_makes_the_same_batches_in_every_epoch(
    source: Source, workers: int
) -> None:
    alone, many = loader(source), loader(source, workers=workers)
    for epoch, start in ((0, 0), (1, 3), (2, 0)):
        assert same(list(alone.epoch(epoch, start)), list(many.epoch(epoch, start)))


def test_an_epoch_that_was_left_in_the_middle_does_not_disturb_the_next(source: Source) -> None:
    many = loader(source, workers=2)
    left = many.epoch(0)
    next(left)
    assert same(list(many.epoch(1)), list(loader(source).epoch(1)))


def test_starting_at_a_step_gives_the_rest_of_the_epoch_without_reading_the_start(
    source: Source, tmp_path: Path
) -> None:
    whole = list(loader(source).epoch(0))
    assert same(list(loader(source).epoch(0, 3)), whole[3:])
    assert list(loader(source).epoch(0, 5)) == []
    # Of all files only those of the last two batches are there.
    for sample in samples(whole[3:]):
        (tmp_path / source.name(sample)).symlink_to(source.place(sample))
    sparse = files(tmp_path, [source.name(index) for index in range(len(source))])
    rest = list(loader(sparse).epoch(0, 3))
    assert same(rest, whole[3:])
    assert not any(batch.unreadable for batch in rest)
    with pytest.raises(ValueError, match="step 6 is not in an epoch of 5"):
        loader(source).epoch(0, 6)


@pytest.mark.parametrize("world", [2, 4])
def test_the_shares_of_all_ranks_joined_are_the_batch_of_one(source: Source, world: int) -> None:
    whole = list(loader(source).epoch(0))
    ranks = [list(loader(source, rank=rank, world=world).epoch(0)) for rank in range(world)]
    for step, batch in enumerate(whole):
        shares = [rank[step] for rank in ranks]
        assert torch.equal(torch.cat([s.samples for s in shares]), batch.samples)
        assert torch.equal(torch.cat([s.views.globals for s in shares], 1), batch.views.globals)
        assert torch.equal(torch.cat([s.views.locals for s in shares], 1), batch.views.locals)


def test_one_channel_and_no_local_crops_work(source: Source) -> None:
    alone = ViewsConfig(global_size=16, local_size=8, local_crops=0)
    batch = next(iter(loader(source, alone, data=DataConfig(channels=1)).epoch(0)))
    assert batch.views.globals.shape == (2, 4, 1, 16, 16)
    assert batch.views.locals.shape == (0, 4, 1, 8, 8)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_replaced_by_the_same_other_one_and_listed_once(
    source: Source, tmp_path: Path, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    names = [source.name(index) for index in range(len(source))]
    images, run = tmp_path / "images", tmp_path / "run"
    images.mkdir()
    for index, name in enumerate(names):
        if index == 5:
            (images / name).write_text("not a picture")
        else:
            (images / name).symlink_to(source.place(index))
    quarantine = Quarantine(run, 22, limit=0.01)
    broken = loader(files(images, names), batch_size=22, workers=workers, quarantine=quarantine)
    with caplog.at_level(logging.WARNING):
        batches = [*broken.epoch(0), *broken.epoch(1)]
    (twice,) = {sample for sample in range(22) if batches[0].samples.tolist().count(sample) == 2}
    for batch in batches:
        assert batch.samples.tolist().count(twice) == 2
        assert 5 not in batch.samples
        assert len(batch.unreadable) == 1
        first, second = (batch.samples == twice).nonzero().flatten().tolist()
        assert not torch.equal(batch.views.globals[:, first], batch.views.globals[:, second])
    assert [record.getMessage().count("05.png") for record in caplog.records] == [1]
    assert broken.quarantine.count == 1
    place, reason = (run / "unreadable.tsv").read_text().strip().split("\t")
    assert (place, reason) == (str(images / "05.png"), "not a picture in a known format")


def test_too_many_unreadable_images_stop_the_epoch_with_the_list(
    source: Source, tmp_path: Path
) -> None:
    names = [f"{index}.png" for index in range(10)]
    for index, name in enumerate(names):
        if index < 3:
            (tmp_path / name).write_text("not a picture")
        else:
            (tmp_path / name).symlink_to(source.place(index))
    quarantine = Quarantine(tmp_path / "run", 10, limit=0.1)
    with pytest.raises(UserError, match=r"3 of 10 images .*unreadable\.tsv"):
        list(loader(files(tmp_path, names), batch_size=10, quarantine=quarantine).epoch(0))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_user_error_in_a_worker_arrives_as_one_line(tmp_path: Path, workers: int) -> None:
    nothing = files(tmp_path, [f"{index}.png" for index in range(4)])
    with pytest.raises(UserError, match="images in a row could not be read") as error:
        next(iter(loader(nothing, workers=workers).epoch(0)))
    assert "\n" not in str(error.value)


class Deadly(Files):
    """Files one of which kills the process that reads it, as a fault in a decoder would."""

    def read(self, row: int) -> bytes:
        if row == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().read(row)


def test_a_worker_that_dies_names_the_file_it_was_reading(source: Source) -> None:
    names = [source.name(index) for index in range(len(source))]
    deadly = everything(source.root, Deadly(source.root, names))
    with pytest.raises(UserError, match=r"ended by signal Killed while it read .*05\.png;"):
        list(loader(deadly, workers=2).epoch(0))


@pytest.mark.parametrize("order", ["shuffled", "sequential"])
def test_every_order_shows_each_image_once_in_batches_of_any_number_of_ranks(
    source: Source, order: Literal["shuffled", "sequential"]
) -> None:
    data = DataConfig(order=order)
    whole = loader(source, batch_size=2, data=data)
    assert sorted(whole.order(0).table().flatten().tolist()) == list(range(22))
    halves = [
        loader(source, batch_size=2, data=data, rank=r, world=2).order(0).table() for r in (0, 1)
    ]
    assert torch.equal(torch.cat(halves, dim=1), whole.order(0).table())
    assert not torch.equal(whole.order(0).table(), whole.order(1).table())


def test_workers_make_the_next_epochs_first_batches_while_the_caller_is_busy(
    source: Source,
) -> None:
    many = loader(source, workers=1, batch_size=11)
    list(many.epoch(0))
    time.sleep(0.5)
    before = many.waited_seconds
    next(iter(many.epoch(1)))
    assert many.waited_seconds - before < 0.1


def test_too_few_images_and_uneven_shares_are_refused_with_their_numbers(source: Source) -> None:
    with pytest.raises(UserError, match=r"22 images are fewer .* of 64; use train\.batch_size=22"):
        loader(source, batch_size=64)
    with pytest.raises(UserError, match="batch of 4 images cannot be shared by 3"):
        loader(source, world=3)


def test_reading_data_leaves_the_callers_random_numbers_alone(source: Source) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(loader(source, workers=1).epoch(0))
    assert torch.equal(torch.get_rng_state(), before)


def test_waiting_counts_the_making_of_batches_but_not_the_callers_own_work(source: Source) -> None:
    ours = loader(source)
    began = time.perf_counter()
    for _ in ours.epoch(0):
        time.sleep(0.05)
    total = time.perf_counter() - began
    assert 0 < ours.waited_seconds <= total - 5 * 0.05


def test_a_loader_that_is_closed_has_no_workers_and_may_be_used_again(source: Source) -> None:
    before = set(multiprocessing.active_children())
    many = loader(source, workers=2)
    next(iter(many.epoch(0)))
    many.close()
    assert set(multiprocessing.active_children()) <= before
    assert same(list(many.epoch(0)), list(loader(source).epoch(0)))


def test_a_program_that_ends_with_an_open_loader_ends(source: Source) -> None:
    program = (
        "from pathlib import Path\n"
        "from tests.data.test_loader import loader\n"
        "from attmask.data.sources import open_images\n"
        f"many = loader(open_images(Path({str(source.root)!r})).train, workers=2)\n"
        "batches = many.epoch(0)\n"
        "next(batches)\n"
        "raise SystemExit('left in the middle')\n"
    )
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.stderr == "left in the middle\n"


def test_the_same_workers_serve_all_epochs_and_ctrl_c_is_not_for_them(
    source: Source, capfd: pytest.CaptureFixture[str]
) -> None:
    def running() -> set[int | None]:
        return {process.pid for process in multiprocessing.active_children()}

    before = running()
    many = loader(source, workers=2)
    list(many.epoch(0))
    workers = running() - before
    assert len(workers) == 2
    for pid in workers:
        assert pid is not None
        os.kill(pid, signal.SIGINT)  # a terminal sends it to all processes of the group
    assert same(list(many.epoch(1)), list(loader(source).epoch(1)))
    assert running() - before == workers
    assert capfd.readouterr().err == ""
