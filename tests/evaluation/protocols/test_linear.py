import json
import multiprocessing
from collections.abc import Iterator
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from attmask import distributed
from attmask.data.decode import decode
from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.crops import CenterCrop, RandomResizedCrop
from attmask.evaluation.features.extractor import FeatureExtractor, Known
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.metrics.accuracy import accuracy
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes import training as probe
from attmask.evaluation.probes.budget import scaled_rates
from attmask.evaluation.probes.training import LabelledBatch
from attmask.evaluation.protocols.linear import Linear, TrainingCrops
from attmask.randomness import uniform
from tests.evaluation.models import extractor_in

SETTINGS = Linear(epochs=3, batch_size=20, rates=(0.01, 0.1), readout=Embedding(blocks=2))


@pytest.fixture
def extractor(tmp_path: Path) -> FeatureExtractor:
    return extractor_in(tmp_path, batch_size=16)


def write(root: Path, counts: dict[str, int]) -> None:
    rng = np.random.default_rng(0)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (40, 36, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:02}.png")


def crops_of(model: FrozenModel, split: Split, extractor: FeatureExtractor) -> TrainingCrops:
    return TrainingCrops(
        model, split.train, extractor, 20, SETTINGS.scale_min, SETTINGS.readout, 32
    )


def test_vectors_do_not_depend_on_workers_and_come_in_every_batch_once(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    alone = [*crops_of(model, split, extractor).epoch(1)]
    helped = [*crops_of(model, split, replace(extractor, workers=2)).epoch(1)]
    assert [len(labels) for _, labels in alone] == [20, 20, 8]
    for (vectors, labels), (again, same) in zip(alone, helped, strict=True):
        assert torch.equal(vectors, again)
        assert torch.equal(labels, same)
    assert split.train.labels is not None
    seen = torch.cat([labels for _, labels in alone]).tolist()
    assert sorted(seen) == sorted(split.train.labels.tolist())


def test_vectors_are_what_the_frozen_network_reads_of_the_crops(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    batch = probe.order(48, batch_size=20, seed=0, epoch=0)[1].tolist()
    vectors, labels = [*crops_of(model, split, extractor).epoch(0)][1]
    assert split.train.labels is not None
    assert labels.tolist() == split.train.labels[batch].tolist()
    seed = int(uniform("crops of a linear probe", 0) * 2**53)
    data = model.data
    crop = RandomResizedCrop(32, 0.08, seed, resampling="bilinear")
    pixels = [crop(decode(split.train, i, data), i) for i in batch]
    mean, std = (torch.tensor(numbers).view(3, 1, 1) for numbers in (data.mean, data.std))
    images = (torch.stack(pixels) / 255 - mean) / std
    with torch.no_grad():
        blocks = model.backbone.eval().cls_of_last_blocks(images, 2)
    torch.testing.assert_close(vectors, torch.cat([*blocks], dim=1), atol=1e-5, rtol=1e-5)


def test_processes_share_every_batch(
    model: FrozenModel, split: Split, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = [*crops_of(model, split, extractor).epoch(0)]
    monkeypatch.setattr(distributed, "world_size", lambda: 9)  # the last batch has 8
    shares: list[list[LabelledBatch]] = []
    for rank in range(9):
        monkeypatch.setattr(distributed, "rank", lambda rank=rank: rank)
        shares.append([*crops_of(model, split, extractor).epoch(0)])
    for step, (vectors, labels) in enumerate(whole):
        together = torch.cat([share[step][0] for share in shares])
        torch.testing.assert_close(together, vectors, atol=1e-5, rtol=1e-5)
        assert torch.equal(torch.cat([share[step][1] for share in shares]), labels)


def test_the_numbers_are_those_of_the_classifier_that_is_kept(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    found = SETTINGS.measure(model, split, extractor)
    assert list(found.values) == [
        "linear.top1",
        "linear.top1_last",
        "linear.top5",
        "linear.top5_last",
        "linear.rate",
    ]
    file = Path(found.details["classifier"])
    network = model.digest
    assert file.parent == extractor.cache / "classifiers"
    assert file.name.startswith(f"linear-{network[:16]}-")
    classifier = LinearClassifier.load(file, network=network)
    assert classifier.classes == tuple(split.train.classes)
    assert classifier.rate == found.values["linear.rate"]
    assert classifier.digest == found.details["classifier sha256"]
    test = extractor.features(model, split.test, CenterCrop(32), Embedding(blocks=2))
    right = accuracy(classifier, test)
    assert found.values["linear.top1"] == right.top1
    assert found.values["linear.top5"] == right.top5
    assert classifier.epoch == found.details["best epoch"]
    rates = found.details["rates"]
    assert [rate["rate"] for rate in rates] == [0.01, 0.1]
    assert found.values["linear.top1"] == max(rate["top-1, best epoch"] for rate in rates)
    assert all(max(rate["top-1"]) == rate["top-1, best epoch"] for rate in rates)
    assert all(rate["top-1"][-1] == rate["top-1, last epoch"] for rate in rates)
    assert [note for note in found.notes if "selected on the test images" in note]


def test_each_training_keeps_a_classifier_of_its_own(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    first = Linear(epochs=1, batch_size=20, rates=(0.1,))
    trainings = [
        (first, extractor),
        (first.model_copy(update={"epochs": 2}), extractor),
        (first.model_copy(update={"rates": (0.2,)}), extractor),
        (first, replace(extractor, seed=1)),
    ]
    found = [settings.measure(model, split, on).details for settings, on in trainings]
    assert len({details["classifier"] for details in found}) == len(trainings)
    for details in found:
        kept = LinearClassifier.load(Path(details["classifier"]), network=model.digest)
        assert kept.digest == details["classifier sha256"]


def test_each_image_goes_through_the_network_once_an_epoch_whatever_the_rates(
    model: FrozenModel, split: Split, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    extractor.features(model, split.test, CenterCrop(32), SETTINGS.readout)
    seen: list[int] = []
    forward = model.backbone.last_outputs

    def counted(images: Tensor, blocks: int) -> Tensor:
        seen.append(len(images))
        return forward(images, blocks)

    monkeypatch.setattr(model.backbone, "last_outputs", counted)
    SETTINGS.measure(model, split, extractor)
    assert sum(seen) == 3 * len(split.train)


def measure_in_one_of_two(
    rank: int, store: Path, model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    """What each of two processes does."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    numbers = SETTINGS.measure(model, split, extractor).values
    dist.barrier()
    dist.destroy_process_group()
    store.with_name(f"numbers-{rank}").write_text(json.dumps(dict(numbers)))


def test_two_processes_measure_what_one_measures(
    model: FrozenModel, split: Split, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    shared = replace(extractor, cache=tmp_path / "shared")
    arguments = (tmp_path / "store", model, split, shared)
    processes = [
        multiprocessing.get_context("fork").Process(
            target=measure_in_one_of_two, args=(rank, *arguments)
        )
        for rank in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=120)
    assert [process.exitcode for process in processes] == [0, 0]
    alone = SETTINGS.measure(model, split, extractor)
    for rank in range(2):
        assert json.loads((tmp_path / f"numbers-{rank}").read_text()) == alone.values
    name = Path(alone.details["classifier"]).name
    one, two = (
        LinearClassifier.load(b.cache / "classifiers" / name, network=model.digest)
        for b in (extractor, shared)
    )
    torch.testing.assert_close(two.weight, one.weight, atol=1e-6, rtol=0)


class KilledError(Exception):
    """What ends a task in the middle."""


def test_a_task_that_was_killed_ends_with_the_same_bits(
    model: FrozenModel,
    split: Split,
    extractor: FeatureExtractor,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(probe, "_SECONDS_BETWEEN_SAVES", 0.0)
    whole = SETTINGS.measure(model, split, extractor)
    other = replace(extractor, cache=tmp_path / "other")
    epoch_of, epochs = TrainingCrops.epoch, []

    def killed_at(crops: TrainingCrops, end: int | None, epoch: int) -> Iterator[LabelledBatch]:
        epochs.append(epoch)
        for number, batch in enumerate(epoch_of(crops, epoch)):
            if (epoch, number) == (end, 1):
                raise KilledError
            yield batch

    monkeypatch.setattr(TrainingCrops, "epoch", partialmethod(killed_at, 1))
    with pytest.raises(KilledError):
        SETTINGS.measure(model, split, other)
    monkeypatch.setattr(TrainingCrops, "epoch", partialmethod(killed_at, None))
    resumed = SETTINGS.measure(model, split, other)
    assert epochs == [0, 1, 1, 2]
    assert resumed.values == whole.values
    assert resumed.details["rates"] == whole.details["rates"]
    network = model.digest
    first, second = (
        LinearClassifier.load(Path(m.details["classifier"]), network=network)
        for m in (whole, resumed)
    )
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.bias, second.bias)
    epochs.clear()
    SETTINGS.measure(model, split, replace(other, seed=1))
    assert epochs == [0, 1, 2], "another seed is another training"


def test_blocks_that_are_not_there_are_not_read_and_that_is_said(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    four = SETTINGS.model_copy(update={"readout": Linear().readout})
    found = four.measure(model, split, extractor)
    assert found.values == SETTINGS.measure(model, split, extractor).values
    assert any("the network has only 2" in note for note in found.notes)


def test_rates_are_for_256_images_a_step(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    assert scaled_rates((0.1, 0.2), 1024) == [0.4, 0.8]
    once, twice = (
        Linear(epochs=2, batch_size=size, rates=(rate,)).measure(model, split, extractor)
        for size, rate in ((256, 0.02), (512, 0.01))  # all 48 images in one batch, both times
    )
    assert once.details["rates"][0]["top-1"] == twice.details["rates"][0]["top-1"]
    (_, first), (_, second) = sorted(
        (file.stat().st_mtime_ns, load_file(file))
        for file in (extractor.cache / "probes").glob("*/*/probes.safetensors")
    )
    assert torch.equal(first["0.0"], second["0.0"])


def test_the_defaults_are_the_papers() -> None:
    paper = Linear()
    on_imagenet = paper.budget(1_281_167)
    assert (on_imagenet.epochs, on_imagenet.batch_size) == (100, 1024)
    assert paper.readout == Embedding(blocks=4)
    assert {0.003, 0.005} <= set(paper.rates)
    assert 0.003 in scaled_rates(paper.rates, 1024), "the rate that the paper states for its batch"


def test_the_papers_rate_is_a_number_of_its_own(
    model: FrozenModel, split: Split, extractor: FeatureExtractor
) -> None:
    settings = SETTINGS.model_copy(update={"rates": (0.00075, 0.1)})
    found = settings.measure(model, split, extractor)
    paper, ours = found.details["rates"]
    assert found.values["linear.top1_paper"] == paper["top-1, best epoch"]
    assert found.values["linear.top1_paper_last"] == paper["top-1, last epoch"]
    assert ours["rate"] == 0.1
    assert not any("as the paper does" in note for note in found.notes)


def test_a_class_without_training_images_is_said(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    write(tmp_path / "train", {"ant": 3, "bee": 1, "cat": 2})
    write(tmp_path / "val", {"ant": 1, "bee": 1, "cat": 2})
    opened = Labelled().open(tmp_path)
    without = Split(opened.train.subset([0, 1, 2, 4, 5]), opened.test)
    found = SETTINGS.measure(model, without, extractor)
    assert any("without a training image: 1, the first is bee" in note for note in found.notes)
    assert found.values["linear.top1"] <= 75


def test_one_class_and_a_test_set_of_one_image_are_measured_and_said(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    write(tmp_path / "train", {"ant": 1})
    write(tmp_path / "val", {"ant": 1})
    found = SETTINGS.measure(model, Labelled().open(tmp_path), extractor)
    assert found.values["linear.top1"] == 100
    assert any("only one class" in note for note in found.notes)


def test_pictures_that_cannot_be_read_are_left_out(
    tmp_path: Path,
    model: FrozenModel,
    extractor: FeatureExtractor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    write(tmp_path / "train", {"ant": 4, "bee": 4})
    write(tmp_path / "val", {"ant": 1, "bee": 1})
    (tmp_path / "train" / "ant" / "00.png").write_bytes(b"no picture")
    split = Labelled().open(tmp_path)
    (batch,) = crops_of(model, split, extractor).epoch(0)
    assert sorted(batch[1].tolist()) == [0, 0, 0, 1, 1, 1, 1]
    assert len(batch[0]) == 7
    assert "1 of 8 images" in caplog.text
    assert "ant/00.png; they are left out" in caplog.text
    for _ in range(2):  # trained, and then read again
        found = SETTINGS.measure(model, split, extractor)
        assert "1 of 8 training images could not be read; they were left out" in found.notes
        assert extractor.unreadable(split.train) == 1
        extractor = replace(extractor, known=Known())
    for file in (tmp_path / "train").glob("*/*.png"):
        file.write_bytes(b"no picture")
    with pytest.raises(UserError, match="no readable image"):
        SETTINGS.measure(model, split, extractor)
