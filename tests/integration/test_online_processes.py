"""The evaluation during training on several processes: the numbers of one, and never a hang."""

import itertools
import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from PIL import Image
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.source import everything
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation import online as module
from attmask.evaluation.online import OnlineEvaluation
from attmask.evaluation.reporting import progress
from attmask.interrupt import StopRequestedError
from attmask.metric import values_by_key
from attmask.models.backbone import Backbone
from attmask.monitor import PretrainMonitorConfig
from tests.evaluation.models import tiny_backbone
from tests.groups import in_group

UNEVEN = PretrainMonitorConfig(
    knn_max_bank_images=31, knn_max_query_images=19, quality_max_images=7
)
FEW = PretrainMonitorConfig(knn_max_bank_images=5, knn_max_query_images=2, quality_max_images=1)


class Seen(NamedTuple):
    """What one process found, and how much it kept and did for it."""

    metrics: dict[str, float]
    baselines: dict[str, float]
    crops: list[int]
    calls: int
    lines: list[str]


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH", 4)
    monkeypatch.setattr(module, "_OBJECTS_AT_ONCE", 4)


@pytest.fixture
def broken(scenes: Path, tmp_path: Path) -> Images:
    """The scenes; six images cannot be read, all among the first, so shares become uneven."""
    shutil.copytree(scenes, tmp_path / "data")
    images = open_images(tmp_path / "data")
    for index in range(6):
        Path(images.train.place(index)).write_bytes(b"no picture")
    return images


def online(images: Images, monitor: PretrainMonitorConfig) -> OnlineEvaluation:
    return OnlineEvaluation(images, DataConfig(), monitor, image_size=32)


def shard(backbone: Backbone) -> None:
    """As FSDP2 shards a teacher whose backbone is also called by evaluations."""
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for block in backbone.blocks:
        fully_shard(block, mesh=mesh)
        register_fsdp_forward_method(block, "cls_attention")
    fully_shard(backbone, mesh=mesh, reshard_after_forward=True)
    for name in ("summary", "attention_heads", "outputs"):
        register_fsdp_forward_method(backbone, name)


def evaluate(
    evaluation: OnlineEvaluation, backbone: Backbone, stop_at: int = 0
) -> dict[str, float]:
    """The metrics; `stop_at` is the batch before which this process is asked to stop."""
    asked = itertools.count(1)
    found = evaluation(backbone, nullcontext, lambda: next(asked) == stop_at)
    return values_by_key(found)


@contextmanager
def lines_said() -> Iterator[list[str]]:
    """What this process logs; a forked one does not reach the fixture of pytest."""
    lines: list[str] = []
    handler, logger = logging.Handler(), logging.getLogger("attmask")
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield lines
    logger.removeHandler(handler)


def look(images: Images, monitor: PretrainMonitorConfig, *, sharded: bool = False) -> Seen:
    backbone, calls = tiny_backbone(), []
    if sharded:
        shard(backbone)
    backbone.blocks[0].register_forward_hook(lambda *_: calls.append(1))
    with lines_said() as lines:
        evaluation = online(images, monitor)
        metrics = evaluate(evaluation, backbone)
    cached = [evaluation.queries, *evaluation.views, *filter(None, [evaluation.bank])]
    crops = [len(each.pixels) for each in cached]
    return Seen(metrics, evaluation.baselines(), crops, len(calls), lines)


def assert_same(seen: Sequence[Seen], alone: Seen) -> None:
    """All processes have the same numbers, those of one process but for rounding."""
    for one in seen:
        assert one.metrics == seen[0].metrics
        assert list(one.metrics) == list(alone.metrics)
        for key, value in alone.metrics.items():
            assert one.metrics[key] == pytest.approx(value, rel=1e-6, abs=1e-6), key
        assert one.baselines == alone.baselines
        assert one.calls == seen[0].calls
    assert [sum(kept) for kept in zip(*(one.crops for one in seen), strict=True)] == alone.crops
    assert seen[0].lines == alone.lines
    assert not any(one.lines for one in seen[1:])


@pytest.mark.parametrize("world", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_several_processes_measure_what_one_measures(
    world: int, scenes: Path, broken: Images, tmp_path: Path
) -> None:
    images = open_images(scenes)
    unlabelled = open_images(min((scenes / "train").iterdir()))
    cases = [(images, UNEVEN), (images, FEW), (broken, UNEVEN), (unlabelled, UNEVEN)]
    group = in_group(world, tmp_path / "group", lambda _: [look(*case) for case in cases])
    for case, *seen in zip(cases, *group, strict=True):
        assert_same(seen, look(*case))
    for one in group:
        assert max(one[0].crops) == one[0].crops[-1] <= -(-31 // world), "its share of the bank"


def test_a_sharded_network_is_called_equally_often_on_all_processes(
    scenes: Path, broken: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call waits for the other process: with one call fewer, this test would fail."""
    cases = [(broken, UNEVEN), (open_images(scenes), FEW)]
    group = in_group(2, tmp_path / "group", lambda _: [look(*case, sharded=True) for case in cases])
    for case, *seen in zip(cases, *group, strict=True):
        assert_same(seen, look(*case))


def test_progress_counts_the_images_of_all_processes(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    images = open_images(scenes)
    main, other = in_group(2, tmp_path, lambda _: look(images, UNEVEN).lines)
    assert other == []
    assert "reading images for the evaluation: 31 of 31" in main
    counts = [line.split()[1::2] for line in main if line.startswith("evaluating: ")]
    assert counts[0] == ["8", "151"], "a batch of four on each process"
    told = "19 queries, 31 in the bank, 19 objects, 68 segmented, 7 in two views"
    assert counts[-1] == ["151", "151"], told


def test_all_processes_stop_before_the_batch_at_which_one_is_asked_to(
    scenes: Path, tmp_path: Path
) -> None:
    images = open_images(scenes)

    def member(rank: int) -> dict[str, float]:
        evaluation, backbone = online(images, UNEVEN), tiny_backbone()
        for stop_at in (1, 3, 9, 13):  # queries, end of the queries, bank, objects
            with pytest.raises(StopRequestedError):
                evaluate(evaluation, backbone, stop_at if rank == 1 else 0)
        return evaluate(evaluation, backbone)

    first, second = in_group(2, tmp_path, member)
    assert first == second
    assert "objects.attention" in first


def test_a_mask_that_one_process_cannot_use_is_left_out_by_all(
    scenes: Path, tmp_path: Path
) -> None:
    shutil.copytree(scenes, tmp_path / "data")
    Image.new("L", (5, 5)).save(max((tmp_path / "data" / "masks" / "val").rglob("*.png")))
    images = open_images(tmp_path / "data")

    def member(rank: int) -> tuple[list[dict[str, float]], list[str]]:
        evaluation, backbone = online(images, PretrainMonitorConfig()), tiny_backbone()
        with lines_said() as lines:
            return [evaluate(evaluation, backbone) for _ in range(2)], lines

    (first, lines), (second, silence) = in_group(2, tmp_path / "group", member)
    assert first == second
    assert not any(key.startswith("objects.") for numbers in first for key in numbers)
    about_objects, about_segmentation = lines
    assert "a mask must have the size of its image; objects are not evaluated" in about_objects
    told = "a mask must have the size of its image; segmentation is not evaluated"
    assert told in about_segmentation
    assert silence == []


def test_a_network_that_is_broken_on_one_process_is_an_error_on_all(
    scenes: Path, tmp_path: Path
) -> None:
    train = open_images(scenes).train
    unlabelled = Images(everything(train.root, train.store))

    def member(rank: int) -> tuple[str, list[str]]:
        evaluation, backbone = online(unlabelled, UNEVEN), tiny_backbone()
        if rank == 1:
            backbone.vit.get_parameter("patch_embed.proj.bias").fill_(torch.nan)
        with lines_said() as lines, pytest.raises(UserError) as caught:
            evaluate(evaluation, backbone)
        return str(caught.value), lines

    (first, lines), (second, silence) = in_group(2, tmp_path, member)
    assert first == second
    assert first.endswith("the features are not finite; the run diverged")
    (line,) = lines
    assert line.startswith("process 1 of 2: the attention has NaN or infinite values")
    assert silence == []


def test_processes_that_find_other_images_are_told_so(scenes: Path, tmp_path: Path) -> None:
    images = open_images(scenes)

    def member(rank: int) -> str:
        found = images if rank == 0 else Images(images.train)
        with pytest.raises(UserError) as caught:
            online(found, UNEVEN)
        return str(caught.value)

    first, second = in_group(2, tmp_path, member)
    assert first == second
    assert first.startswith("the processes do not find the same images or masks")
