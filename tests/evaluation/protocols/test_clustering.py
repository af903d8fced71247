"""Clusters against classes: the measures by their definitions, and the protocol on real files."""

import itertools
import math
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols import clustering
from attmask.evaluation.protocols.clustering import (
    Clustering,
    ClusterResult,
    agreement,
    cluster,
    k_means,
)
from attmask.hardware import Precision
from attmask.models.backbone import BackboneConfig, build_backbone

CPU = torch.device("cpu")
Marks = list[int]
marks = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=2, max_size=30)


def plain_nmi(labels: Marks, clusters: Marks) -> float:
    """Mutual information over the mean entropy, by counting."""
    n = len(labels)
    own, other, both = (
        Counter(labels),
        Counter(clusters),
        Counter(zip(labels, clusters, strict=True)),
    )
    shared = sum(m / n * math.log(m * n / (own[a] * other[b])) for (a, b), m in both.items())
    entropies = [-sum(m / n * math.log(m / n) for m in c.values()) for c in (own, other)]
    return 1.0 if sum(entropies) == 0 else shared / (sum(entropies) / 2)


def plain_ari(labels: Marks, clusters: Marks) -> float:
    """Over all pairs of images: together in both, less what chance gives."""
    pairs = list(itertools.combinations(range(len(labels)), 2))
    same = [labels[i] == labels[j] for i, j in pairs]
    near = [clusters[i] == clusters[j] for i, j in pairs]
    both = sum(a and b for a, b in zip(same, near, strict=True))
    chance = sum(same) * sum(near) / len(pairs)
    most = (sum(same) + sum(near)) / 2
    return 1.0 if most == chance else (both - chance) / (most - chance)


def plain_accuracy(labels: Marks, clusters: Marks) -> float:
    """Every matching of five names of clusters to five names of classes, the best counts."""
    both = Counter(zip(labels, clusters, strict=True))
    matchings = itertools.permutations(range(5))
    best = max(sum(both[label, cluster] for cluster, label in enumerate(m)) for m in matchings)
    return best / len(labels)


@given(marks)
def test_agreement_equals_the_definitions(pairs: list[tuple[int, int]]) -> None:
    labels, clusters = (list(column) for column in zip(*pairs, strict=True))
    found = agreement(np.array(labels), np.array(clusters))
    assert found.nmi == pytest.approx(100 * plain_nmi(labels, clusters), abs=1e-7)
    assert found.ari == pytest.approx(100 * plain_ari(labels, clusters), abs=1e-7)
    assert found.accuracy == pytest.approx(100 * plain_accuracy(labels, clusters), abs=1e-9)


@given(marks, st.permutations(range(4)))
def test_names_of_clusters_do_not_matter(pairs: list[tuple[int, int]], names: Marks) -> None:
    labels, clusters = (np.array(column) for column in zip(*pairs, strict=True))
    found, renamed = agreement(labels, clusters), agreement(labels, np.array(names)[clusters])
    assert renamed.accuracy == found.accuracy
    assert (renamed.nmi, renamed.ari) == pytest.approx((found.nmi, found.ari), abs=1e-9)


def test_agreement_of_the_same_is_all_and_of_one_cluster_none() -> None:
    labels = np.arange(12) % 3
    same, one = agreement(labels, labels + 7), agreement(labels, np.zeros(12, np.int64))
    assert (same.nmi, same.ari, same.accuracy) == pytest.approx((100, 100, 100))
    assert (one.nmi, one.ari, one.accuracy) == pytest.approx((0, 0, 100 / 3))


def blobs(images: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(0)
    labels = np.arange(images) % classes
    points = 20 * np.eye(classes, 8)[labels] + chance.normal(size=(images, 8))
    return points.astype(np.float32), labels


@pytest.mark.parametrize(
    ("distances", "numbers", "in_batches"),
    [(200 * 5, 200 * 8, False), (200 * 5 - 1, 200 * 8, True), (200 * 5, 200 * 8 - 1, True)],
)
def test_groups_that_lie_apart_are_found_in_whole_passes_and_in_batches(
    distances: int, numbers: int, in_batches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "_DISTANCES_OF_WHOLE_PASSES", distances)
    monkeypatch.setattr(clustering, "_NUMBERS_OF_WHOLE_PASSES", numbers)
    points, labels = blobs(200, 5)
    found = k_means(points, 5, starts=3, seed=0)
    assert agreement(labels, found.clusters).nmi == pytest.approx(100)
    assert found.in_batches == in_batches
    middles = np.stack([points[labels == c].mean(axis=0) for c in range(5)])
    spread = float(np.square(points - middles[labels]).sum())
    assert found.spread == pytest.approx(spread, rel=0.05 if in_batches else 1e-4)


def test_the_same_seed_gives_the_same_clusters_and_leaves_the_random_state_alone() -> None:
    points = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    states = torch.get_rng_state().tolist(), repr(np.random.get_state())
    first, again, other = (k_means(points.copy(), 9, starts=1, seed=s) for s in (0, 0, 1))
    assert np.array_equal(first.clusters, again.clusters)
    assert not np.array_equal(first.clusters, other.clusters)
    assert states == (torch.get_rng_state().tolist(), repr(np.random.get_state()))


@pytest.fixture(scope="module")
def model() -> FrozenModel:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", width=24, depth=2, heads=2, patch_size=8)
    return FrozenModel(
        "tiny", build_backbone(config, image_size=32, channels=3), 32, DataConfig(), None
    )


@pytest.fixture
def extractor(tmp_path: Path) -> FeatureExtractor:
    return FeatureExtractor(
        device=CPU, precision=Precision.choose("fp32", CPU), cache=tmp_path / "cache"
    )


def coloured(folder: Path, shades: dict[str, list[int]], images: int = 6) -> Split:
    """Pictures of one grey a class and a little noise, in both parts."""
    chance = np.random.default_rng(0)
    for part, (name, levels) in itertools.product(("train", "val"), shades.items()):
        (folder / part / name).mkdir(parents=True)
        for i, level in itertools.product(range(images), levels):
            pixels = level + chance.integers(0, 4, (32, 32, 3))
            file = folder / part / name / f"{level}-{i}.png"
            Image.fromarray(pixels.astype(np.uint8)).save(file)
    return Labelled().open(folder)


def test_classes_that_differ_in_their_pictures_are_found(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = coloured(tmp_path, {"dark": [20], "grey": [120], "white": [250]})
    found = Clustering().measure(model, data, extractor)
    assert list(found.values.items()) == [
        ("clustering.nmi", pytest.approx(100)),
        ("clustering.ari", pytest.approx(100)),
        ("clustering.accuracy", 100),
    ]
    assert found.notes == ()
    assert found.details["cluster sizes"] == [6, 6, 6]
    assert Clustering().measure(model, data, extractor) == found


def test_more_clusters_than_classes_leave_some_over(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = coloured(tmp_path, {"dark": [20], "bright": [130, 250]})
    found = Clustering(clusters=3).measure(model, data, extractor)
    assert found.values["clustering.accuracy"] == pytest.approx(100 * 12 / 18)
    assert found.values["clustering.nmi"] < 100
    assert found.notes == (
        "3 clusters cannot be matched one to one with 2 classes; "
        "images of unmatched ones count as wrong in the cluster accuracy.",
    )


def test_either_part_can_be_clustered_and_a_class_without_image_is_said(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    whole = coloured(tmp_path, {"dark": [20], "grey": [120], "white": [250]})
    data = Split(whole.train, whole.test.subset(range(12)))
    test = Clustering().measure(model, data, extractor)
    assert (test.details["clusters"], test.details["images"]) == (2, 12)
    assert test.notes == ("1 of 3 classes have no test image.",)
    train = Clustering(part="train").measure(model, data, extractor)
    assert (train.details["clusters"], train.details["images"]) == (3, 18)
    assert train.notes == ()


def test_length_of_a_feature_does_not_matter(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[np.ndarray] = []

    def watched(points: np.ndarray, k: int, *, starts: int, seed: int) -> ClusterResult:
        shown.append(points.copy())
        return k_means(points, k, starts=starts, seed=seed)

    monkeypatch.setattr(clustering, "k_means", watched)
    data = coloured(tmp_path, {"dark": [20], "white": [250]})
    Clustering().measure(model, data, extractor)
    np.testing.assert_allclose(np.linalg.norm(shown[0], axis=1), 1, rtol=1e-6)


def test_features_that_are_all_the_same_are_one_cluster_and_said(
    tmp_path: Path,
    model: FrozenModel,
    extractor: FeatureExtractor,
    recwarn: pytest.WarningsRecorder,
) -> None:
    data = coloured(tmp_path, {"a": [20], "b": [250]})
    same = data.test.subset([0] * 8)
    same = replace(same, labels=np.arange(8) % 4, classes=("a", "b", "c", "d"))
    found = Clustering().measure(model, Split(same, same), extractor)
    assert found.values["clustering.nmi"] == pytest.approx(0, abs=1e-9)
    assert found.values["clustering.accuracy"] == 25
    assert found.notes == ("3 of 4 clusters are empty: too few distinct features.",)
    assert not [warning for warning in recwarn if "distinct" in str(warning.message)]


def test_many_images_are_clustered_in_batches_and_it_is_said(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "_DISTANCES_OF_WHOLE_PASSES", 1)
    data = coloured(tmp_path, {"dark": [20], "white": [250]})
    found = Clustering().measure(model, data, extractor)
    assert found.values["clustering.nmi"] == pytest.approx(100)
    assert found.notes == ("Mini-batch k-means was used because of the number of images.",)


def test_of_many_numbers_k_means_learns_from_some_images_and_all_are_in_its_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points, labels = blobs(200, 5)
    vectors = 3 * torch.from_numpy(points)
    whole = cluster(vectors, 5, starts=3, seed=0)
    assert whole.learned_from == 200
    seen: list[np.ndarray] = []

    def watched(points: np.ndarray, k: int, *, starts: int, seed: int) -> ClusterResult:
        seen.append(points.copy())
        return k_means(points, k, starts=starts, seed=seed)

    monkeypatch.setattr(clustering, "k_means", watched)
    monkeypatch.setattr(clustering, "_NUMBERS_LEARNED_FROM", 67 * 8 + 7)
    monkeypatch.setattr(clustering, "_BATCH", 33)
    some = cluster(vectors, 5, starts=3, seed=0)
    unit = torch.nn.functional.normalize(vectors, dim=1).numpy()
    np.testing.assert_allclose(seen[0], unit[np.arange(67) * 200 // 67], rtol=1e-6)
    assert (len(some.clusters), some.learned_from) == (200, 67)
    assert agreement(labels, some.clusters).nmi == pytest.approx(100)
    spread = float(np.square(unit - some.middles[some.clusters]).sum())
    assert some.spread == pytest.approx(spread, rel=1e-4)
    assert whole.spread < some.spread < 1.1 * whole.spread
    assert torch.equal(vectors, 3 * torch.from_numpy(points)), "features are left as they are"
    monkeypatch.setattr(clustering, "_NUMBERS_LEARNED_FROM", 1)
    assert cluster(vectors, 5, starts=1, seed=0).learned_from == 5, "one image a cluster at least"


def test_learning_from_some_images_is_said(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clustering, "_NUMBERS_LEARNED_FROM", 24 * 6)
    data = coloured(tmp_path, {"dark": [20], "white": [250]})
    found = Clustering().measure(model, data, extractor)
    assert found.values["clustering.nmi"] == pytest.approx(100)
    assert found.details["images"] == 12
    assert found.notes == (
        "k-means was fitted on 6 of 12 images, evenly spaced, to use at most 2 GB; "
        "all images are assigned to its clusters.",
    )


def test_what_cannot_be_clustered_is_refused_in_one_line(
    tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = coloured(tmp_path, {"dark": [20], "white": [250]}, images=2)
    with pytest.raises(
        UserError, match=r"clusters=5 is more than the 4 test images .* from 1 to 4"
    ):
        Clustering(clusters=5).measure(model, data, extractor)
    alone = Split(data.train, data.test.subset([0]))
    with pytest.raises(UserError, match=r"all test images of .* \(1\) have the same class"):
        Clustering().measure(model, alone, extractor)
    one_of_each = Split(data.train, data.test.subset([0, 3]))
    assert Clustering().measure(model, one_of_each, extractor).values[
        "clustering.nmi"
    ] == pytest.approx(100)


def test_without_scikit_learn_the_extra_is_named() -> None:
    script = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np\n"
        "from attmask.errors import UserError\n"
        "from attmask.evaluation.protocols.clustering import Clustering, agreement, k_means\n"
        "def say(call, *given, **more):\n"
        "    try: call(*given, **more)\n"
        "    except UserError as error: print(error)\n"
        "say(Clustering().check, None, None)\n"
        "say(agreement, np.zeros(2, int), np.zeros(2, int))\n"
        "say(k_means, np.zeros((2, 2), np.float32), 1, starts=1, seed=0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "src")},
    )
    line = "clustering needs scikit-learn, which is missing; run: pip install scikit-learn\n"
    assert done.stdout == 3 * line
