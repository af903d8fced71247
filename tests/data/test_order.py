import hashlib
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import attmask.data.order as order_module
from attmask.data.order import ROWS_A_SHARD, WINDOW, Batches, sequential, shuffled
from attmask.data.source import Source, everything
from attmask.data.stores.names import pack
from attmask.data.stores.shards import Shards
from attmask.randomness import uniform
from tests.sources import of_files


class Synthetic:
    """A store of pictures that are not there."""

    shards = ()

    def __init__(self, images: int) -> None:
        self.images = images

    def __len__(self) -> int:
        return self.images

    def name(self, row: int) -> str:
        return str(row)

    def read(self, row: int) -> bytes:
        raise OSError(row)


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=8)


def sharded(sizes: list[int]) -> Source:
    ends = np.cumsum(sizes)
    images = int(ends[-1])
    nothing = np.zeros(images, dtype=np.int64)
    store = Shards(
        Path(),
        [f"{i}.tar" for i in range(len(sizes))],
        pack(f"{i}.png" for i in range(images)),
        begins=ends - sizes,
        numbers=np.arange(len(sizes)),
        blocks=nothing,
        sizes=nothing,
    )
    return everything(Path(), store)


@given(images=st.integers(1, 300), batch=st.integers(1, 40), epoch=st.integers(0, 3))
def test_a_shuffled_epoch_shows_each_image_at_most_once_in_whole_batches(
    images: int, batch: int, epoch: int
) -> None:
    order = shuffled(images, batch_size=batch, seed=1, epoch=epoch).table()
    assert order.shape == (images // batch, batch)
    shown = order.flatten().tolist()
    assert len(set(shown)) == len(shown)
    assert set(shown) <= set(range(images))


def test_the_shuffled_order_is_that_of_the_counters() -> None:
    numbers = uniform("order of images", 3, 5, np.arange(10))
    expected = torch.from_numpy(numbers.argsort(kind="stable")[:9].reshape(3, 3))
    assert torch.equal(shuffled(10, batch_size=3, seed=3, epoch=5).table(), expected)


def test_orders_are_those_of_earlier_versions() -> None:
    def digest(batches: Batches) -> str:
        return hashlib.sha256(batches.table().numpy().tobytes()).hexdigest()[:12]

    source = sharded([700, 30, 1500, 1, 900])
    some = source.subset(np.arange(0, len(source), 3)[::-1].copy())
    assert [
        digest(shuffled(100_003, batch_size=64, seed=5, epoch=3)),
        digest(sequential(source, batch_size=7, seed=5, epoch=3)),
        digest(sequential(some, batch_size=7, seed=5, epoch=3)),
        digest(sequential(source.first(2000), batch_size=3, seed=5, epoch=0)),
    ] == ["51eeb9138d7d", "307c6238db67", "64690ecd21c9", "32675e7d0037"]


def test_many_images_are_shuffled_without_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_module, "LARGE", 1000)
    orders = [
        shuffled(1001, batch_size=10, seed=seed, epoch=epoch).table()
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    for order in orders:
        assert order.shape == (100, 10)
        assert len(set(order.flatten().tolist())) == 1000
        assert set(order.flatten().tolist()) <= set(range(1001))
    assert len({tuple(order.flatten().tolist()) for order in orders}) == 3


def test_a_batch_of_a_billion_images_takes_no_memory() -> None:
    billion = 1_000_000_000
    tracemalloc.start()
    last = shuffled(billion, batch_size=64, seed=0, epoch=9)[billion // 64 - 1]
    store = Synthetic(billion)
    pieces = sequential(everything(Path(), store), batch_size=64, seed=0, epoch=9)
    middle = pieces[len(pieces) // 2]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000_000
    assert int(last.max()) < billion
    assert len(set(last.tolist())) == len(set(middle.tolist())) == 64


@given(sizes=SIZES, batch=st.integers(1, 12), epoch=st.integers(0, 3))
def test_a_sequential_epoch_shows_each_image_at_most_once_in_whole_batches(
    sizes: list[int], batch: int, epoch: int
) -> None:
    source = sharded(sizes)
    order = sequential(source, batch_size=batch, seed=1, epoch=epoch).table()
    assert order.shape == (len(source) // batch, batch)
    shown = order.flatten().tolist()
    assert len(set(shown)) == len(shown)
    assert set(shown) <= set(range(len(source)))
    assert len(source) - len(shown) < batch


def test_a_lane_reads_a_shard_front_to_back_but_for_a_window() -> None:
    size = 3 * WINDOW
    lanes = sequential(sharded([size] * 20), batch_size=5, seed=0, epoch=2).table().T
    for lane in lanes:
        place = {row: step for step, row in enumerate(lane.tolist())}
        far = [(row, row + WINDOW) for row in place if row % size < size - WINDOW]
        far = [(row, later) for row, later in far if later in place]
        assert len(far) > len(lane) / 2
        assert all(place[row] < place[later] for row, later in far)
        assert sum(place[row] > place.get(row + 1, len(lane)) for row in place) > len(lane) / 3
        assert len(set((lane // size).tolist())) <= len(lane) // size + 2


def test_batches_come_from_all_over_the_data() -> None:
    order = sequential(sharded([100] * 50), batch_size=16, seed=0, epoch=0).table()
    shards_of_a_batch = [len(set((batch // 100).tolist())) for batch in order]
    assert min(shards_of_a_batch) >= 8


def test_shards_come_in_another_order_each_epoch() -> None:
    source = sharded([WINDOW] * 12)
    followers = set()
    for epoch in range(3):
        order = sequential(source, batch_size=1, seed=0, epoch=epoch).table().flatten()
        shards = [int((window // WINDOW).mode().values) for window in order.split(WINDOW)]
        followers.add(tuple((b - a) % 12 for a, b in pairwise(shards)))
    assert len(followers) == 3
    assert all(set(steps) != {1} for steps in followers)


def test_the_sequential_order_and_what_it_leaves_out_change_with_epoch_and_seed() -> None:
    source = sharded([7] * 15)
    orders = {
        (seed, epoch): sequential(source, batch_size=10, seed=seed, epoch=epoch).table()
        for seed in range(2)
        for epoch in range(10)
    }
    assert len({tuple(order.flatten().tolist()) for order in orders.values()}) == 20
    left_out = [
        frozenset(range(105)) - frozenset(order.flatten().tolist()) for order in orders.values()
    ]
    assert len(set(left_out)) > 10
    again = sequential(source, batch_size=10, seed=1, epoch=3).table()
    assert torch.equal(again, orders[1, 3])


@pytest.mark.parametrize("kind", ["files", "one shard"])
def test_loose_files_and_a_single_shard_are_cut_into_shards_of_their_own(kind: str) -> None:
    count = 5 * ROWS_A_SHARD
    whole = of_files(Path(), pack(f"{i}.png" for i in range(count)))
    source = whole if kind == "files" else sharded([count])
    order = sequential(source, batch_size=1, seed=0, epoch=0).table().flatten()
    pieces = (order // ROWS_A_SHARD).tolist()
    changes = sum(a != b for a, b in pairwise(pieces))
    assert sorted(order.tolist()) == list(range(count))
    assert pieces[0] != 0 or pieces[-1] != 4
    assert changes < 5 * WINDOW


def test_a_subset_is_read_by_where_its_images_lie() -> None:
    source = sharded([50] * 6).subset(np.arange(0, 300, 3)[::-1].copy())
    order = sequential(source, batch_size=2, seed=0, epoch=0).table()
    shown = order.flatten().tolist()
    assert sorted(shown) == list(range(100))
    rows = torch.from_numpy(source.rows)[order].T
    assert max(len(set((lane // 50).tolist())) for lane in rows) <= 4
