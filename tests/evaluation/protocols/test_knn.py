from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.neighbors import KNeighborsClassifier
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.metrics import neighbours
from attmask.evaluation.metrics.accuracy import Accuracy
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.knn import IDLE_CLASSES, Knn, knn_accuracies, knn_accuracy

GOLDEN = Path(__file__).parents[2] / "golden" / "knn.npz"


def random_features(images: int, classes: int, seed: int, width: int = 8) -> Features:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(images) % classes
    centres = torch.randn(classes, width, generator=torch.Generator().manual_seed(99))
    cls = centres[labels] + torch.randn(images, width, generator=draw)
    return Features(values=cls, labels=labels)


def plain_knn(
    bank: Features, queries: Features, k: int, temperature: float, classes: int
) -> Accuracy:
    """One query after the other, with loops and a sort that keeps the order of equals."""
    assert bank.labels is not None
    assert queries.labels is not None
    first = five = 0
    for query, label in zip(queries.vectors, queries.labels.tolist(), strict=True):
        cosine = functional.cosine_similarity(bank.vectors, query[None], dim=1).tolist()
        nearest = sorted(range(len(cosine)), key=lambda i: -cosine[i])[:k]
        votes = [0.0] * classes
        for i in nearest:
            votes[int(bank.labels[i])] += float(np.exp(cosine[i] / temperature))
        ranked = sorted(range(classes), key=lambda c: -votes[c])
        first += label == ranked[0]
        five += label in ranked[:5]
    return Accuracy(100 * first / len(queries.vectors), 100 * five / len(queries.vectors))


@pytest.mark.parametrize("k", [5, 20, 100])
def test_accuracy_equals_the_reference_implementation(k: int) -> None:
    golden = np.load(GOLDEN)

    def features(split: str) -> Features:
        labels = torch.from_numpy(golden[f"{split}_labels"])
        return Features(values=torch.from_numpy(golden[split]), labels=labels)

    accuracy = knn_accuracy(features("train"), features("test"), k=k, classes=10)
    assert (accuracy.top1, accuracy.top5) == pytest.approx(golden[f"top_{k}"], abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 30), classes=st.integers(1, 8))
def test_accuracy_equals_a_plain_loop(seed: int, k: int, classes: int) -> None:
    bank, queries = random_features(30, classes, seed), random_features(11, classes, seed + 1)
    expected = plain_knn(bank, queries, k, 0.07, classes)
    assert knn_accuracy(bank, queries, k=k, classes=classes) == expected


def test_one_neighbour_equals_scikit_learn() -> None:
    bank, queries = random_features(200, 5, 0), random_features(100, 5, 1)
    judge = KNeighborsClassifier(1, metric="cosine").fit(bank.vectors.numpy(), bank.labels)
    expected = 100 * judge.score(queries.vectors.numpy(), queries.labels)
    assert knn_accuracy(bank, queries, k=1, classes=5).top1 == pytest.approx(expected)


@pytest.mark.parametrize("k", [5, 20, 150])
def test_weighted_votes_equal_scikit_learn(k: int) -> None:
    bank, queries = random_features(200, 7, 0), random_features(150, 7, 1)
    judge = KNeighborsClassifier(
        k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.07)
    )
    judge.fit(bank.vectors.double().numpy(), bank.labels)
    expected = 100 * judge.score(queries.vectors.double().numpy(), queries.labels)
    assert knn_accuracy(bank, queries, k=k, classes=7).top1 == pytest.approx(expected)


def test_one_search_gives_what_each_k_gives_alone() -> None:
    bank, queries = random_features(60, 9, 0), random_features(41, 9, 1)
    together = knn_accuracies(bank, queries, ks=[20, 1, 60], classes=9)
    assert together == {k: knn_accuracy(bank, queries, k=k, classes=9) for k in (20, 1, 60)}


def test_a_class_without_votes_ranks_by_its_number() -> None:
    bank = Features(values=torch.ones(2, 3), labels=torch.tensor([7, 3]))
    # The order of the vote is 3, 7, 0, 1, 2, 4, 5, 6, 8, 9.
    for label, is_in_five in ((3, True), (7, True), (2, True), (4, False), (0, True), (9, False)):
        query = Features(values=torch.ones(1, 3), labels=torch.tensor([label]))
        accuracy = knn_accuracy(bank, query, k=2, classes=10)
        assert (accuracy.top1, accuracy.top5) == (100 * (label == 3), 100 * is_in_five)


def test_a_million_classes_take_no_more_memory_than_few() -> None:
    bank, queries = random_features(3000, 3000, 0), random_features(2000, 3000, 1)
    few = knn_accuracy(bank, queries, k=20, classes=3000)
    # One vote for each query and class would be 16 GB.
    assert knn_accuracy(bank, queries, k=20, classes=1_000_000) == few


def test_chunks_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, queries = random_features(60, 6, 0), random_features(41, 6, 1)
    whole = knn_accuracy(bank, queries, k=7, classes=6)
    monkeypatch.setattr(neighbours, "_CPU_BLOCK", (16, 16))
    assert knn_accuracy(bank, queries, k=7, classes=6) == whole


def test_length_of_a_feature_does_not_matter() -> None:
    bank, queries = random_features(50, 4, 0), random_features(30, 4, 1)
    longer = Features(
        values=bank.vectors * torch.linspace(0.1, 50, 50)[:, None], labels=bank.labels
    )
    assert knn_accuracy(longer, queries, k=9, classes=4) == knn_accuracy(
        bank, queries, k=9, classes=4
    )


def test_of_equally_similar_bank_images_the_earlier_counts() -> None:
    bank = Features(values=torch.ones(300, 3), labels=torch.arange(300) % 3)
    for label, expected in ((0, 100.0), (1, 0.0), (2, 0.0)):
        query = Features(values=torch.ones(1, 3), labels=torch.tensor([label]))
        assert knn_accuracy(bank, query, k=1, classes=3).top1 == expected


def test_of_classes_with_equal_votes_the_lower_wins() -> None:
    bank = Features(values=torch.ones(2, 3), labels=torch.tensor([4, 2]))
    query = Features(values=torch.ones(1, 3), labels=torch.tensor([2]))
    assert knn_accuracy(bank, query, k=2, classes=5).top1 == 100


def test_top5_of_fewer_than_five_classes_is_all_of_them() -> None:
    bank, queries = random_features(30, 3, 0), random_features(10, 3, 1)
    assert knn_accuracy(bank, queries, k=1, classes=3).top5 == 100


def test_a_tiny_temperature_does_not_overflow() -> None:
    bank, queries = random_features(30, 3, 0), random_features(20, 3, 1)
    nearest = knn_accuracy(bank, queries, k=1, classes=3).top1
    assert knn_accuracy(bank, queries, k=10, temperature=1e-6, classes=3).top1 == nearest


@pytest.mark.parametrize(
    ("bank", "k", "temperature", "classes", "says"),
    [
        (random_features(5, 2, 0), 6, 0.07, 2, "bank of 5 images; use k from 1 to 5"),
        (random_features(5, 2, 0), 0, 0.07, 2, "use k from 1 to 5"),
        (random_features(5, 2, 0), 1, 0.0, 2, "not positive"),
        (random_features(5, 4, 0), 1, 0.07, 2, "labels 0 to 3 for 2 classes"),
        (Features(torch.ones(5, 8), None), 1, 0.07, 2, "no labels"),
        (Features(torch.ones(0, 8), torch.ones(0).long()), 1, 0.07, 2, "empty"),
        (Features(torch.full((5, 8), torch.nan), torch.zeros(5).long()), 1, 0.07, 2, "not finite"),
        (random_features(5, 2, 0, width=9), 1, 0.07, 2, "width 9, query features 8"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    bank: Features, k: int, temperature: float, classes: int, says: str
) -> None:
    with pytest.raises(UserError, match=says):
        knn_accuracy(bank, random_features(4, 2, 1), k=k, temperature=temperature, classes=classes)


@pytest.mark.parametrize("readout", [Embedding(), Embedding(token="gap", blocks=2)])
def test_the_protocol_measures_its_own_readout_for_every_k(
    scenes: Path, model: FrozenModel, extractor: FeatureExtractor, readout: Embedding
) -> None:
    data = Labelled().open(scenes)
    measures = Knn(ks=(20, 1, 200), readout=readout, image_size=40).measure(model, data, extractor)
    bank, queries = (
        extractor.features(model, source, CenterCrop(40), readout)
        for source in (data.train, data.test)
    )
    by_k = {k: knn_accuracy(bank, queries, k=k, classes=data.classes) for k in (20, 1, 48)}
    assert list(measures.values.items()) == [
        ("knn.top1", by_k[20].top1),
        ("knn.top5", by_k[20].top5),
        ("knn.top1@1", by_k[1].top1),
        ("knn.top1@200", by_k[48].top1),
    ]
    assert measures.details["by k"]["1"] == {"top1": by_k[1].top1}
    assert measures.details["by k"]["200"] == {"top1": by_k[48].top1, "top5": by_k[48].top5}
    assert measures.details["k"] == {"knn.top1": 20, "knn.top5": 20}
    assert measures.notes == (
        "k = 200 is more than the 48 training images, so all of them vote",
        IDLE_CLASSES,
        "no top-5 at k = 1: fewer than five classes can have a vote",
    )


@pytest.mark.parametrize(("k", "images"), [(1, 48), (4, 48), (20, 3)])
def test_top_5_is_not_reported_where_fewer_than_five_images_vote(
    k: int, images: int, scenes: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = Labelled().open(scenes)
    few = Split(data.train.subset(range(images)), data.test)
    measures = Knn(ks=(k,)).measure(model, few, extractor)
    votes = min(k, images)
    assert list(measures.values) == ["knn.top1"]
    assert measures.details["by k"] == {str(k): {"top1": measures.values["knn.top1"]}}
    assert measures.details["k"] == {"knn.top1": votes}
    assert f"no top-5 at k = {votes}: fewer than five classes can have a vote" in measures.notes
    five = Knn(ks=(5,)).measure(model, data, extractor)
    assert list(five.values) == ["knn.top1", "knn.top5"]
    assert IDLE_CLASSES in five.notes


def test_classes_that_cannot_be_learned_are_named(
    scenes: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = Labelled().open(scenes)
    assert data.train.labels is not None
    names = data.train.classes
    one_class = data.train.subset(np.flatnonzero(data.train.labels == 1))
    measures = Knn(ks=(1,)).measure(model, Split(one_class, data.test), extractor)
    shown = f"{names[0]}, {names[2]}, {names[3]}, ..."
    note = f"9 of 10 tested classes have no training image: {shown}"
    assert measures.notes[0] == note
    assert measures.values["knn.top1"] == 10


def test_a_single_test_image_is_measured(
    scenes: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = Labelled().open(scenes)
    single = Split(data.train, data.test.subset([0]))
    assert Knn().measure(model, single, extractor).values["knn.top1"] in (0.0, 100.0)


@pytest.mark.parametrize("settings", [{"ks": ()}, {"ks": (0,)}, {"temperature": 0}])
def test_impossible_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        Knn.model_validate(settings)
