import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.datasets.masked import Masked, MaskedSplit
from attmask.evaluation.features.crops import resized
from attmask.evaluation.features.forward import normalise
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.segment_knn import SegmentKnn
from attmask.evaluation.task import Measures
from tests.evaluation.coloured import NAMES, write_coloured
from tests.evaluation.models import extractor_in, tiny_model
from tests.groups import in_group


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> MaskedSplit:
    return Masked().open(write_coloured(tmp_path_factory.mktemp("coloured"), train=9, val=5))


@pytest.fixture(scope="module")
def measured(data: MaskedSplit, tmp_path_factory: pytest.TempPathFactory) -> Measures:
    return SegmentKnn().measure(tiny_model(), data, extractor_in(tmp_path_factory.mktemp("knn")))


def plain_confusion(model: FrozenModel, data: MaskedSplit, k: int) -> np.ndarray:
    """The procedure as it reads, with one matrix of all similarities."""

    def shown(images: object, index: int) -> tuple[torch.Tensor, np.ndarray]:
        file = images.source.place(index)  # type: ignore[attr-defined]
        pixels = np.asarray(__import__("PIL.Image").Image.open(file))
        crop = normalise(resized(pixels, (32, 32))[None], model.data.mean, model.data.std)
        with torch.no_grad():
            tokens = model.backbone.vit.norm(model.backbone.outputs(crop, [2])[0, 0])
        labels = images.read(index, pixels.shape[1::-1])  # type: ignore[attr-defined]
        return functional.normalize(tokens[model.backbone.prefix :], dim=1), labels

    classes = len(NAMES)
    bank, shares = [], []
    for index in range(len(data.train)):
        vectors, labels = shown(data.train, index)
        square = functional.interpolate(
            torch.from_numpy(labels).float()[None, None], (32, 32), mode="nearest-exact"
        )[0, 0]
        for patch in range(16):
            top, left = 8 * (patch // 4), 8 * (patch % 4)
            inside = square[top : top + 8, left : left + 8]
            counts = torch.stack([(inside == c).sum() for c in range(classes)]).float()
            bank.append(vectors[patch])
            shares.append(counts / counts.sum())
    confusion = np.zeros((classes, classes), dtype=np.int64)
    for index in range(len(data.test)):
        vectors, labels = shown(data.test, index)
        near = (vectors @ torch.stack(bank).T).topk(k, dim=1)
        weights = (near.values / 0.07).softmax(dim=1)
        votes = (weights[:, :, None] * torch.stack(shares)[near.indices]).sum(dim=1)
        scores = votes.T.view(1, classes, 4, 4)
        large = functional.interpolate(scores, labels.shape, mode="bilinear")[0].argmax(dim=0)
        known = labels >= 0
        np.add.at(confusion, (labels[known], large.numpy()[known]), 1)
    return confusion


def test_it_measures_what_the_plain_procedure_does(data: MaskedSplit, measured: Measures) -> None:
    confusion = plain_confusion(tiny_model(), data, k=20)
    both = confusion.diagonal()
    iou = both / (confusion.sum(axis=0) + confusion.sum(axis=1) - both)
    assert measured.values["segment_knn.miou"] == pytest.approx(100 * iou.mean(), abs=1e-3)
    wanted = 100 * both.sum() / confusion.sum()
    assert measured.values["segment_knn.aacc"] == pytest.approx(wanted, abs=1e-3)


def test_colours_are_told_apart_at_the_size_of_the_masks(measured: Measures) -> None:
    assert list(measured.values) == ["segment_knn.miou", "segment_knn.aacc", "segment_knn.macc"]
    assert measured.values["segment_knn.miou"] > 60
    assert [row["name"] for row in measured.details["classes"]] == list(NAMES)
    assert measured.details["bank"] == 9 * 16
    assert measured.notes == ()


def test_its_files_are_a_table_of_the_classes_and_a_picture(measured: Measures) -> None:
    table, picture = measured.files
    with table.open() as lines:
        rows = list(csv.DictReader(lines))
    assert [row["class"] for row in rows] == list(NAMES)
    found = [float(row["iou"]) for row in rows]
    assert np.mean(found) == pytest.approx(measured.values["segment_knn.miou"], abs=0.01)
    assert picture.read_bytes()[:4] == b"\x89PNG"
    worst = measured.details["worst"]
    assert [image["iou"] for image in worst] == sorted(image["iou"] for image in worst)


def test_several_processes_measure_what_one_measures(
    data: MaskedSplit, measured: Measures, tmp_path: Path
) -> None:
    def member(_: int) -> dict[str, float]:
        return SegmentKnn().measure(tiny_model(), data, extractor_in(tmp_path)).values

    for one in in_group(2, tmp_path / "group", member):
        assert one == pytest.approx(measured.values, rel=1e-4)


def test_a_small_bank_has_the_same_number_of_patches_of_each_image(
    data: MaskedSplit, tmp_path: Path
) -> None:
    few = SegmentKnn(max_bank_patches=30, k=40)
    found = few.measure(tiny_model(), data, extractor_in(tmp_path))
    assert found.details["bank"] == 27
    assert found.notes == ("k = 40 is more than the 27 training patches, so all of them vote",)


def test_sizes_layers_and_banks_that_do_not_fit_are_refused_before_images_are_read(
    data: MaskedSplit,
) -> None:
    SegmentKnn().check(tiny_model(), data)
    for settings, wanted in (
        ({"image_size": 30}, "30 is not a multiple of"),
        ({"readout": {"layers": [3]}}, "layer 3 does not exist"),
        ({"max_bank_patches": 8}, "a bank of 8 patches is too small for 9"),
    ):
        with pytest.raises(UserError, match=wanted):
            SegmentKnn.model_validate(settings).check(tiny_model(), data)
