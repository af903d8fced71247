"""k-means clusters of features, compared with the labels."""

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

# Images x clusters; above, as with ImageNet's training set, mini-batch k-means is used. Not below:
# on 25,000 x 384 synthetic features in 500 groups it took as long and was less accurate.
_DISTANCES_OF_WHOLE_PASSES = 2**26
# Full k-means holds the points twice (scikit-learn computes their variance): 2 GB.
_NUMBERS_OF_WHOLE_PASSES = 2**28
_BATCH = 16_384
# k-means needs its points in memory: at most 2 GB, which is all of ImageNet at a width of 384. With
# more, it is fitted on an evenly spaced subset, and every image is assigned to the nearest cluster.
_NUMBERS_LEARNED_FROM = 2**29


@dataclass(frozen=True)
class Agreement:
    """The agreement of clusters with classes, in per cent."""

    nmi: float
    """Normalised mutual information: mutual information over the mean of both entropies."""
    ari: float
    """Adjusted Rand index: agreement on pairs of images, corrected for chance (0 is chance)."""
    accuracy: float
    """Accuracy under the best one-to-one assignment of clusters to classes."""


def agreement(labels: Int[np.ndarray, " M"], clusters: Int[np.ndarray, " M"]) -> Agreement:
    """NMI, ARI and accuracy under the best assignment of clusters to classes."""
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
    """The cluster of each image, and how k-means was run."""

    clusters: Int[np.ndarray, " M"]
    middles: Float32[np.ndarray, "K W"]
    learned_from: int
    in_batches: bool
    spread: float
    """The sum of the squared distances to the cluster centres (inertia)."""


def k_means(points: Float32[np.ndarray, "M W"], k: int, *, starts: int, seed: int) -> ClusterResult:
    """k-means, best of several starts; scikit-learn may change `points` in place.

    It runs on one thread: with several, the order of sums and thus the result would vary.
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
        # Fewer distinct points than clusters; the protocol has a note for this.
        warnings.simplefilter("ignore", ConvergenceWarning)
        clusters = judge.fit(points).labels_.astype(np.int64)
    middles = judge.cluster_centers_
    return ClusterResult(clusters, middles, len(points), not whole, float(judge.inertia_))


def cluster(vectors: Float[Tensor, "M W"], k: int, *, starts: int, seed: int) -> ClusterResult:
    """k-means on L2-normalised vectors; many images are clustered by an evenly spaced subset."""
    images, width = vectors.shape
    learned = min(images, max(k, _NUMBERS_LEARNED_FROM // width))
    rows = torch.arange(learned) * images // learned
    found = k_means(_unit(vectors[rows]).numpy(), k, starts=starts, seed=seed)
    return found if learned == images else _nearest(found, vectors)


def _nearest(found: ClusterResult, vectors: Float[Tensor, "M W"]) -> ClusterResult:
    """Assign all images to the nearest cluster, batch by batch."""
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
    """L2-normalise in place, because a second copy may need gigabytes."""
    return vectors.div_(vectors.norm(dim=1, keepdim=True).clamp_min(1e-12))


class Clustering(Config):
    """k-means on L2-normalised features, compared with the classes."""

    part: Literal["test", "train"] = setting(
        "test", "images to cluster: the test or the training images"
    )
    clusters: int | None = setting(
        None, "number of clusters (null: the number of classes that have an image)", ge=1
    )
    starts: int = setting(10, "number of k-means starts, of which the best is kept", ge=1)
    image_size: int | None = setting(
        None, "side of the centre crop in pixels (null: the network's own)", ge=1
    )
    readout: Embedding = setting(CLS, "features to use")

    def check(self, model: FrozenModel, data: Split) -> None:
        """Check that scikit-learn is installed and that there are enough classes and images."""
        _require_scikit_learn()
        source = data.test if self.part == "test" else data.train
        check_images(source)
        check_crop(model, self.image_size, self.readout)
        assert source.labels is not None, "labelled images have labels"
        classes = len(np.unique(source.labels))
        self._check(len(source), classes, self.clusters or classes, source.root)

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """Cluster the images and compare the clusters with the labels."""
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
                f"all {self.part} images of {root} ({images}) have the same class; "
                "clustering needs images of at least two classes"
            )
        if k > images:
            raise UserError(
                f"clusters={k} is more than the {images} {self.part} images of {root}; "
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
                f"k-means was fitted on {found.learned_from} of {len(found.clusters)} images, "
                "evenly spaced, to use at most 2 GB; all images are assigned to its clusters."
            )
        if found.in_batches:
            notes.append("Mini-batch k-means was used because of the number of images.")
        if empty := int((sizes == 0).sum()):
            notes.append(f"{empty} of {len(sizes)} clusters are empty: too few distinct features.")
        if len(sizes) != classes:
            notes.append(
                f"{len(sizes)} clusters cannot be matched one to one with {classes} classes; "
                "images of unmatched ones count as wrong in the cluster accuracy."
            )
        return notes


def _require_scikit_learn() -> None:
    try:
        import_module("sklearn")
    except ImportError as fault:
        raise UserError(
            "clustering needs scikit-learn, which is missing; run: pip install scikit-learn"
        ) from fault
