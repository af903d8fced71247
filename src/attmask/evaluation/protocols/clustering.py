"""Do features fall into the classes by themselves? k-means without labels, held against them."""

import warnings
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import CLS, Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import Config, setting

# Images x clusters; beyond, as with ImageNet's train part, k-means learns from batches. Not before:
# on 25,000 x 384 made-up features in 500 groups they took as long as whole passes and found less.
_DISTANCES_OF_WHOLE_PASSES = 2**26
# Whole passes hold the points twice (scikit-learn takes their variance): 2 GB.
_NUMBERS_OF_WHOLE_PASSES = 2**28
_BATCH = 16_384
# k-means wants its points in memory: 2 GB of them, all of ImageNet's at a width of 384. Of more, it
# learns from as many, evenly spaced, and every image is put into the nearest cluster.
_NUMBERS_LEARNED_FROM = 2**29


@dataclass(frozen=True)
class Agreement:
    """How well clusters fit classes, in per cent; the names of the clusters do not matter."""

    nmi: float
    """Mutual information over the mean of both entropies."""
    ari: float
    """Pairs of images that are judged alike, less what chance gives: 0 is chance."""
    accuracy: float
    """Images whose cluster is the one matched to their class, each cluster to one class at most."""


def agreement(labels: Int[np.ndarray, " M"], clusters: Int[np.ndarray, " M"]) -> Agreement:
    """NMI, ARI and accuracy after the best matching of clusters to classes."""
    _require_scikit_learn()
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
    from sklearn.metrics.cluster import contingency_matrix

    together = contingency_matrix(labels, clusters)
    matched = together[linear_sum_assignment(together, maximize=True)].sum()
    return Agreement(
        nmi=100 * float(normalized_mutual_info_score(labels, clusters)),
        ari=100 * float(adjusted_rand_score(labels, clusters)),
        accuracy=100 * float(matched) / len(labels),
    )


@dataclass(frozen=True, eq=False)
class ClusterResult:
    """The cluster of each image, and how it was found."""

    clusters: Int[np.ndarray, " M"]
    middles: Float32[np.ndarray, "K W"]
    learned_from: int
    in_batches: bool
    spread: float
    """The sum of the squared distances to the middle of the own cluster."""


def k_means(points: Float32[np.ndarray, "M W"], k: int, *, starts: int, seed: int) -> ClusterResult:
    """The best of several starts; `points` are scikit-learn's to change meanwhile.

    On one thread: the sums of several come in another order each time, and so would the result.
    """
    _require_scikit_learn()
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    settings: dict[str, Any] = {"n_clusters": k, "n_init": starts, "random_state": seed % 2**32}
    whole = len(points) * k <= _DISTANCES_OF_WHOLE_PASSES
    whole = whole and points.size <= _NUMBERS_OF_WHOLE_PASSES
    if whole:
        judge = KMeans(**settings, copy_x=False)
    else:
        judge = MiniBatchKMeans(**settings, batch_size=max(_BATCH, 4 * k))
    with threadpool_limits(1), warnings.catch_warnings():
        # Fewer different points than clusters: the protocol says so itself.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = judge.fit(points).labels_.astype(np.int64)
    middles = judge.cluster_centers_
    return ClusterResult(clusters, middles, len(points), not whole, float(judge.inertia_))


def cluster(vectors: Float[Tensor, "M W"], k: int, *, starts: int, seed: int) -> ClusterResult:
    """k-means on vectors of length one; of many, learned from some, evenly spaced."""
    images, width = vectors.shape
    learned = min(images, max(k, _NUMBERS_LEARNED_FROM // width))
    rows = torch.arange(learned) * images // learned
    found = k_means(_unit(vectors[rows]).numpy(), k, starts=starts, seed=seed)
    return found if learned == images else _nearest(found, vectors)


def _nearest(found: ClusterResult, vectors: Float[Tensor, "M W"]) -> ClusterResult:
    """All images in the clusters that were found on some, a few at a time."""
    from sklearn.metrics import pairwise_distances_argmin_min
    from threadpoolctl import threadpool_limits

    clusters, spread = [], 0.0
    with threadpool_limits(1):
        for some in vectors.split(_BATCH):
            own, distances = pairwise_distances_argmin_min(
                _unit(some.clone()).numpy(), found.middles, metric="sqeuclidean"
            )
            clusters.append(own)
            spread += float(distances.sum(dtype=np.float64))
    return replace(found, clusters=np.concatenate(clusters), spread=spread)


def _unit(vectors: Float[Tensor, "m W"]) -> Float[Tensor, "m W"]:
    """The same at length one, in place: a second copy may be gigabytes."""
    return vectors.div_(vectors.norm(dim=1, keepdim=True).clamp_min(1e-12))


class Clustering(Config):
    """k-means on L2-normalised features, held against the classes."""

    part: Literal["test", "train"] = setting(
        "test", "which images are put into clusters: those to test on, or to learn from"
    )
    clusters: int | None = setting(
        None, "number of clusters (null: of classes that have an image)", ge=1
    )
    starts: int = setting(10, "k-means starts so often and keeps the tightest clusters", ge=1)
    image_size: int | None = setting(
        None, "side of the crop in pixels (null: the network's own)", ge=1
    )
    readout: Embedding = setting(CLS, "what is read of the network")

    def check(self, model: FrozenModel, data: Split) -> None:
        """Whether scikit-learn, two classes and images enough are there, by the labels."""
        _require_scikit_learn()
        source = data.test if self.part == "test" else data.train
        check_images(source)
        check_crop(model, self.image_size, self.readout)
        assert source.labels is not None, "labelled images have labels"
        classes = len(np.unique(source.labels))
        self._check(len(source), classes, self.clusters or classes, source.root)

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """Cluster the images, then look at their labels."""
        source = data.test if self.part == "test" else data.train
        crop = CenterCrop(self.image_size or model.image_size)
        features = extractor.features(model, source, crop, self.readout, f"{self.part} images")
        assert features.labels is not None, "labelled images have labels"
        labels = features.labels.numpy()
        classes = len(np.unique(labels))
        k = self.clusters or classes
        self._check(len(labels), classes, k, source.root)
        found = cluster(features.vectors, k, starts=self.starts, seed=extractor.seed)
        fit = agreement(labels, found.clusters)
        sizes = np.bincount(found.clusters, minlength=k)
        return Measures(
            (
                Metric("clustering.nmi", fit.nmi, "%", True, title="NMI"),
                Metric("clustering.ari", fit.ari, "%", True, title="ARI"),
                Metric("clustering.accuracy", fit.accuracy, "%", True, title="cluster accuracy"),
            ),
            tuple(self._notes(data, classes, sizes, found)),
            {
                "clusters": k,
                "classes": classes,
                "images": len(labels),
                "spread": found.spread,
                "cluster sizes": sizes.tolist(),
            },
        )

    def _check(self, images: int, classes: int, k: int, root: Path) -> None:
        if classes < 2:
            raise UserError(
                f"all {self.part} images of {root} ({images}) are of one class; "
                "clustering needs images of two classes or more"
            )
        if k > images:
            raise UserError(
                f"{k} clusters were asked of {images} {self.part} images of {root}; "
                f"use clusters from 1 to {images}"
            )

    def _notes(
        self, data: Split, classes: int, sizes: Int[np.ndarray, " K"], found: ClusterResult
    ) -> list[str]:
        notes = []
        if missing := data.classes - classes:
            notes.append(f"{missing} of {data.classes} classes have no {self.part} image.")
        if found.learned_from < len(found.clusters):
            notes.append(
                f"k-means learned from {found.learned_from} of {len(found.clusters)} images, "
                "evenly spaced, to keep within 2 GB; all are put into its clusters."
            )
        if found.in_batches:
            notes.append("So many images are clustered by k-means on batches.")
        if empty := int((sizes == 0).sum()):
            notes.append(f"{empty} of {len(sizes)} clusters are empty: too few features differ.")
        if len(sizes) != classes:
            notes.append(
                f"{len(sizes)} clusters do not match {classes} classes one to one; "
                "images of what is left over count as wrong in the cluster accuracy."
            )
        return notes


def _require_scikit_learn() -> None:
    try:
        import_module("sklearn")
    except ImportError as fault:
        raise UserError(
            "clustering needs scikit-learn, which comes with attmask; run: pip install scikit-learn"
        ) from fault
