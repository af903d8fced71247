from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor

from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.datasets.galleries import Folder, Gallery
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.forward import Features
from attmask.evaluation.protocols.recall import Recall, look_up
from tests.evaluation.models import extractor_in, tiny_model
from tests.real_data import FOLDER, needs


def with_ties(images: int, classes: int, seed: int) -> Features:
    """Few directions at whole angles, so that many images are equally similar, to the bit."""
    draw = np.random.default_rng(seed)
    corners = np.eye(4, dtype=np.float32)[draw.integers(0, 4, images)]
    return Features(
        torch.from_numpy(corners * draw.choice([1, 2, 4], (images, 1)).astype(np.float32)),
        torch.from_numpy(draw.integers(0, classes, images)),
    )


def plain(
    queries: Features, gallery: Features | None, ks: tuple[int, ...]
) -> tuple[list[float], float, float]:
    """One query after the other, one neighbour after the other."""
    bank = queries if gallery is None else gallery
    assert queries.labels is not None
    assert bank.labels is not None
    recall, precision, mean = dict.fromkeys(ks, 0.0), 0.0, 0.0
    for row, (query, label) in enumerate(zip(queries.vectors, queries.labels, strict=True)):
        cosine = (bank.vectors @ query) / bank.vectors.norm(dim=1)
        others = [i for i in range(len(cosine)) if gallery is not None or i != row]
        ranked = [
            bool(bank.labels[i] == label) for i in sorted(others, key=lambda i: -float(cosine[i]))
        ]
        for k in ks:
            recall[k] += any(ranked[:k])
        if wanted := sum(ranked):
            precision += sum(ranked[:wanted]) / wanted
            at = [sum(ranked[: i + 1]) / (i + 1) for i in range(wanted) if ranked[i]]
            mean += sum(at) / wanted
    count = len(queries.vectors)
    return [hits / count for hits in recall.values()], precision / count, mean / count


@settings(max_examples=60)
@given(
    seed=st.integers(0, 100_000),
    images=st.integers(2, 30),
    classes=st.integers(1, 12),
    looked_up=st.integers(0, 20),
)
def test_numbers_equal_a_plain_loop_with_ties(
    seed: int, images: int, classes: int, looked_up: int
) -> None:
    queries = with_ties(images, classes, seed)
    gallery = with_ties(looked_up, classes + 2, seed + 1) if looked_up else None
    ks = (1, 2, 7, 50)
    found = look_up(queries, gallery, ks)
    recall, precision, mean = plain(queries, gallery, ks)
    assert list(found.recall.values()) == pytest.approx(recall)
    assert (found.r_precision, found.map_at_r) == pytest.approx((precision, mean))


def features(angles: list[float], labels: list[int]) -> Features:
    turned = torch.tensor(angles).deg2rad()
    return Features(torch.stack([turned.cos(), turned.sin()], dim=1), torch.tensor(labels))


def test_an_image_does_not_find_itself() -> None:
    apart = features([0, 90, 1, 91], [0, 0, 1, 1])
    found = look_up(apart, None, (1, 2, 3))
    assert dict(found.recall) == {1: 0, 2: 0.5, 3: 1}


def test_the_same_image_in_query_and_gallery_may_be_found() -> None:
    apart = features([0, 90, 1, 91], [0, 0, 1, 1])
    assert look_up(apart, apart, (1,)).recall[1] == 1


def test_map_at_r_is_the_published_example() -> None:
    # R = 10 (Musgrave et al., table 1): recall@1 and R-precision cannot tell these apart as MAP@R.
    def gallery(right: set[int]) -> Features:
        return features([float(i) for i in range(20)], [int(i not in right) for i in range(20)])

    query = features([0.0], [0])
    late = look_up(query, gallery({0, *range(11, 20)}), (1,))
    last = look_up(query, gallery({0, 9, *range(12, 20)}), (1,))
    second = look_up(query, gallery({0, 1, *range(12, 20)}), (1,))
    assert [found.recall[1] for found in (late, last, second)] == [1, 1, 1]
    assert [f.r_precision for f in (late, last, second)] == pytest.approx([0.1, 0.2, 0.2])
    assert [f.map_at_r for f in (late, last, second)] == pytest.approx([0.1, 0.12, 0.2])


def test_a_query_without_another_of_its_class_is_missed_and_said(
    scenes: Path, tmp_path: Path
) -> None:
    source = open_images(scenes / "val").train
    assert source.labels is not None
    counts = Counter(source.labels.tolist())
    common = min(c for c in counts if counts[c] > 1)
    rare = next(c for c in counts if c != common)
    kept = [*np.flatnonzero(source.labels == common)[:2], np.flatnonzero(source.labels == rare)[0]]
    few = source.subset(np.array(kept))
    found = Recall(ks=(2, 4)).measure(tiny_model(), Gallery(few), extractor_in(tmp_path))
    assert found.values["recall.recall@2"] == pytest.approx(200 / 3)
    assert found.notes == (
        "1 of 3 queries have no other image of their class; they count as missed",
        "k = 4 is more than the 2 other images; all are used",
    )


def test_equal_features_are_looked_up_in_order() -> None:
    same = Features(torch.ones(4, 3), torch.tensor([0, 1, 1, 0]))
    assert dict(look_up(same, None, (1, 2, 3)).recall) == {1: 0.25, 2: 0.75, 3: 1.0}


@pytest.mark.parametrize(
    ("vectors", "labels", "says"),
    [
        (torch.ones(1, 3), torch.zeros(1).long(), "give at least two"),
        (torch.ones(2, 3), None, "have no labels"),
        (torch.ones(0, 3), torch.zeros(0).long(), "have no labels"),
        (torch.tensor([[1.0], [torch.nan]]), torch.zeros(2).long(), "not finite"),
    ],
)
def test_what_cannot_be_looked_up_is_refused(
    vectors: Tensor, labels: Tensor | None, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        look_up(Features(vectors, labels), None, (1,))


def test_a_protocol_looks_features_up(scenes: Path, tmp_path: Path) -> None:
    images, model, extractor = open_images(scenes), tiny_model(), extractor_in(tmp_path)
    assert images.val is not None
    queries, gallery = (
        extractor.features(model, source, CenterCrop(32)) for source in (images.val, images.train)
    )
    found = Recall(ks=(1, 5)).measure(model, Gallery(images.val, images.train), extractor)
    recall, precision, mean = plain(queries, gallery, (1, 5))
    expected = [100 * value for value in (*recall, precision, mean)]
    assert list(found.values) == [
        "recall.recall@1",
        "recall.recall@5",
        "recall.r_precision",
        "recall.map_at_r",
    ]
    assert list(found.values.values()) == pytest.approx(expected)
    assert found.notes == ()


def test_another_image_size_is_another_measurement(scenes: Path, tmp_path: Path) -> None:
    data, extractor = Folder().open(scenes), extractor_in(tmp_path)
    usual, larger = (
        Recall(image_size=size).measure(tiny_model(), data, extractor).values for size in (None, 48)
    )
    assert usual != larger


@pytest.mark.parametrize("ks", [(), (0,), (1, -2)])
def test_impossible_numbers_of_neighbours_are_refused(ks: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError):
        Recall(ks=ks)


@needs("cub160")
def test_real_birds_are_found_more_often_than_by_chance(tmp_path: Path) -> None:
    data, extractor = Folder(per_class=4).open(FOLDER / "cub160"), extractor_in(tmp_path)
    found = Recall().measure(tiny_model(), data, extractor).values
    recall, precision, mean = plain(
        extractor.features(tiny_model(), data.queries, CenterCrop(32)), None, (1, 2, 4, 8)
    )
    expected = [100 * value for value in (*recall, precision, mean)]
    assert list(found.values()) == pytest.approx(expected)
    assert found["recall.recall@8"] > 100 * 8 * 3 / 159  # an upper bound of what chance finds
