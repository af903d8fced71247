import logging
import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attmask.data.loader import Batch, Loader
from attmask.data.sources import Source, open_images
from attmask.data.views import ViewsConfig, draw, render
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
    channels: int = 3,
    rank: int = 0,
    world: int = 1,
) -> Loader:
    return Loader(
        source,
        config,
        channels=channels,
        batch_size=batch_size,
        seed=seed,
        workers=workers,
        rank=rank,
        world=world,
    )


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


def test_a_batch_holds_the_views_that_its_counters_draw(source: Source) -> None:
    batch = next(iter(loader(source).epoch(3)))
    sample = int(batch.samples[2])
    image = Image.open(source.path(sample))
    for view in range(4):
        choices = draw(SMALL, image.size, seed=7, epoch=3, sample=sample, view=view)
        row = batch.views.globals[view] if view < 2 else batch.views.locals[view - 2]
        assert np.array_equal(row[2].numpy(), render(image, choices))


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
        (tmp_path / source.paths[sample]).symlink_to(source.path(sample))
    sparse = Source(tmp_path, source.paths)
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
    batch = next(iter(loader(source, alone, channels=1).epoch(0)))
    assert batch.views.globals.shape == (2, 4, 1, 16, 16)
    assert batch.views.locals.shape == (0, 4, 1, 8, 8)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_unreadable_image_is_replaced_by_the_next_and_named_once(
    source: Source, tmp_path: Path, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    for index, path in enumerate(source.paths):
        if index == 5:
            (tmp_path / path).write_text("not a picture")
        else:
            (tmp_path / path).symlink_to(source.path(index))
    broken = loader(Source(tmp_path, source.paths), batch_size=22, workers=workers)
    with caplog.at_level(logging.WARNING):
        batches = [*broken.epoch(0), *broken.epoch(1)]
    for batch in batches:
        assert batch.samples.tolist().count(6) == 2
        assert 5 not in batch.samples
        assert len(batch.unreadable) == 1
        first, second = (batch.samples == 6).nonzero().flatten().tolist()
        assert not torch.equal(batch.views.globals[:, first], batch.views.globals[:, second])
    assert [record.getMessage().count("05.png") for record in caplog.records] == [1]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_user_error_in_a_worker_arrives_as_one_line(tmp_path: Path, workers: int) -> None:
    paths = tuple(Path(f"{index}.png") for index in range(4))
    with pytest.raises(UserError, match="4 images in a row could not be read") as error:
        next(iter(loader(Source(tmp_path, paths), workers=workers).epoch(0)))
    assert "\n" not in str(error.value)


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
