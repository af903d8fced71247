import re
import statistics
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.fewshot import FewShot
from attmask.evaluation.protocols.knn import IDLE_CLASSES, knn_accuracy
from attmask.overrides import assigned, with_values


def pictures(folder: Path, train: dict[str, int], val: dict[str, int]) -> Split:
    """So many pictures of each class, of a colour of the class and much noise."""
    draw = np.random.default_rng(0)
    hues = {name: draw.integers(90, 160, 3) for name in sorted(train | val)}
    for part, sizes in (("train", train), ("val", val)):
        for name, count in sizes.items():
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = (hues[name] + draw.integers(-90, 90, (32, 32, 3))).astype(np.uint8)
                Image.fromarray(pixels).save(folder / part / name / f"{i:03}.png")
    return Labelled().open(folder)


def plain(train: Features, test: Features, starts: list[int], shots: int, k: int) -> list[float]:
    """Top-1 of each subset, its images picked one by one."""
    assert train.labels is not None
    labels = train.labels.tolist()
    found = []
    for start in starts:
        members = [[i for i, own in enumerate(labels) if own == c] for c in sorted(set(labels))]
        chosen = sorted(i for own in members for i in own[start : start + shots])
        bank = Features(train.vectors[chosen], train.labels[chosen])
        found.append(knn_accuracy(bank, test, k=k, classes=max(labels) + 1).top1)
    return found


def test_subsets_are_disjoint_and_start_where_the_reference_starts() -> None:
    assert FewShot().starts(1) == [0, 5, 10, 15, 20]
    assert FewShot().starts(5) == [0, 5, 10, 15, 20]
    assert FewShot().starts(20) == [0, 20, 40, 60, 80]
    assert FewShot(subsets=2).starts(10) == [0, 10]


def test_mean_and_deviation_are_those_of_subsets_picked_by_hand(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = pictures(tmp_path, {"a": 25, "b": 27, "c": 31}, {"a": 9, "b": 8, "c": 10})
    measures = FewShot(shots=(1, 5, 8), k=7).measure(model, data, extractor)
    train, test = (
        extractor.features(model, source, CenterCrop(32)) for source in (data.train, data.test)
    )
    single = plain(train, test, [0, 5, 10, 15, 20], 1, 1)
    five = plain(train, test, [0, 5, 10, 15, 20], 5, 7)
    eight = plain(train, test, [0, 8, 16], 8, 7)
    assert len(set(single + five + eight)) > 3  # the subsets do not all give the same
    assert list(measures.values) == [f"fewshot.top1@{shots}" for shots in (1, 5, 8)]
    names = ("1 shot", "5 shots", "8 shots")
    for metric, name, expected in zip(measures.metrics, names, (single, five, eight), strict=True):
        assert metric.value == pytest.approx(np.mean(expected))
        assert metric.spread == pytest.approx(statistics.stdev(expected))
        assert measures.details[name]["top-1"] == expected
    assert measures.notes == (
        "8 shots: from 3 of 5 subsets, because a has 25 images",
        IDLE_CLASSES,
    )


def test_top_5_is_not_reported_of_one_shot_where_one_image_votes(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = pictures(tmp_path, {"a": 25, "b": 27, "c": 31}, {"a": 9, "b": 8, "c": 10})
    details = FewShot(shots=(1, 5)).measure(model, data, extractor).details
    assert "top-5" not in details["1 shot"]
    assert len(details["5 shots"]["top-5"]) == 5
    assert details["k"] == {"fewshot.top1@1": 1, "fewshot.top1@5": 15}
    alone = FewShot(shots=(1,)).measure(model, data, extractor)
    assert IDLE_CLASSES not in alone.notes


def test_what_is_too_few_is_said(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = pictures(tmp_path, {"a": 5, "b": 6, "c": 1}, {"a": 1, "c": 1})
    data = Split(data.train.subset(range(11)), data.test)
    measures = FewShot(shots=(5, 1, 20)).measure(model, data, extractor)
    assert list(measures.values) == ["fewshot.top1@5", "fewshot.top1@1"]
    assert [metric.spread for metric in measures.metrics] == [None, None], "there is one subset"
    assert measures.notes == (
        "1 of 2 tested classes have no training image: c",
        "5 shots: from 1 of 5 subsets, because a has 5 images",
        "1 shot: from 1 of 5 subsets, because a has 5 images",
        "20 shots: left out, because a has 5 images",
        "5 shots: k = 20 is more than the 10 images, so all vote",
        IDLE_CLASSES,
    )


def test_one_image_in_a_class_is_enough_for_one_shot(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = pictures(tmp_path, {"a": 1, "b": 9}, {"b": 1})
    assert FewShot().measure(model, data, extractor).values["fewshot.top1@1"] in (0.0, 100.0)


def test_more_shots_than_any_class_has_are_refused(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = pictures(tmp_path, {"a": 3, "b": 9}, {"a": 1, "b": 1})
    asked = FewShot(shots=(10, 5))
    wanted = r"5 images per class are needed, but a has 3; use (shots=\[3\]), or"
    with pytest.raises(UserError, match=wanted) as refused:
        asked.measure(model, data, extractor)
    advice = re.search(r"use (.*), or", str(refused.value))
    assert advice is not None
    advised = with_values(asked, [assigned(advice[1], "shots=[1]")])
    assert list(advised.measure(model, data, extractor).values) == ["fewshot.top1@3"]


@pytest.mark.parametrize("settings", [{"shots": ()}, {"shots": (0,)}, {"subsets": 0}, {"k": 0}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        FewShot.model_validate(settings)
