"""Label-free quality: the spread of the features and of the assignments to prototypes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.datasets.pictures import Shown
from attmask.evaluation.features.crops import CenterCrop, RandomResizedCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features, frozen
from attmask.evaluation.features.readout import CLS, Embedding
from attmask.evaluation.metrics.geometry import PAIRED_IMAGES, alignment, effective_rank, uniformity
from attmask.evaluation.model import FrozenModel, Prototypes
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import Config, setting

LEAST_AREA = 0.25
_PROBABILITIES_AT_ONCE = 2**24  # 64 MB of fp32, for any number of prototypes


@dataclass(frozen=True)
class Assignments:
    """Statistics of the assignments of images to prototypes."""

    entropy: float
    """The mean entropy of an image's assignment in nats; 0 is a single prototype."""
    used: float
    """exp of the entropy of the mean assignment; K if all prototypes are used equally."""
    dead: float
    """The share of prototypes that are the first choice of no image."""
    prototypes: int

    @classmethod
    def over(cls, batches: Iterable[Float[Tensor, "_ K"]]) -> "Assignments":
        """Compute the statistics over all images, batch by batch."""
        images, entropy = 0, 0.0
        mass = chosen = torch.zeros(())
        for shares in batches:
            images += len(shares)
            entropy += float(torch.special.entr(shares).sum(dtype=torch.float64))
            mass = mass + shares.sum(dim=0, dtype=torch.float64)
            chosen = chosen + shares.argmax(dim=1).bincount(minlength=shares.shape[1])
        if not images:
            raise ValueError("there are no assignments")
        if not math.isfinite(entropy):
            raise UserError("the teacher's assignments are not finite; its training diverged")
        spread = float(torch.special.entr(mass / images).sum())
        return cls(
            entropy=entropy / images,
            used=math.exp(spread),
            dead=float((chosen == 0).double().mean()),
            prototypes=len(mass),
        )


def assignments(prototypes: Prototypes, features: Float[Tensor, "M D"]) -> Assignments:
    """Statistics of the teacher's assignments of `[CLS]` features, computed in pieces."""
    pieces = features.split(max(1, _PROBABILITIES_AT_ONCE // len(prototypes.centre)))
    with frozen(prototypes.head):
        return Assignments.over(prototypes.assign_pieces(pieces))


def common_images(
    first: Features, second: Features
) -> tuple[Float[Tensor, "M D"], Float[Tensor, "M D"]]:
    """The vectors of the images that both have, in the same order."""
    if first.rows is None and second.rows is None:
        return first.vectors, second.vectors
    ours, theirs = (_rows(features) for features in (first, second))
    if torch.equal(ours, theirs):
        return first.vectors, second.vectors
    _, in_first, in_second = np.intersect1d(
        ours.numpy(), theirs.numpy(), assume_unique=True, return_indices=True
    )
    if not len(in_first):
        raise UserError(
            "no image could be read for both views; delete the cached features (--cache) and check "
            "that the files do not change"
        )
    return first.vectors[torch.from_numpy(in_first)], second.vectors[torch.from_numpy(in_second)]


def _rows(features: Features) -> Int64[Tensor, "M"]:
    """The indices of these images in the source."""
    return torch.arange(len(features.vectors)) if features.rows is None else features.rows.long()


class Quality(Config):
    """Rank, alignment and uniformity of the features, and the spread of the assignments."""

    image_size: int | None = setting(
        None, "side of the crops in pixels (null: the network's own)", ge=1
    )
    readout: Embedding = setting(CLS, "features to use for rank, alignment and uniformity")
    least_area: float = setting(
        LEAST_AREA,
        "minimum share of the image's area in the two random crops for alignment",
        gt=0,
        le=1,
    )

    def check(self, model: FrozenModel, data: Shown) -> None:
        """Check the images, the crop size and the number of blocks."""
        check_images(data.images)
        check_crop(model, self.image_size, self.readout)

    def measure(self, model: FrozenModel, data: Shown, extractor: FeatureExtractor) -> Measures:
        """Compute all label-free metrics."""
        size, images = self.image_size or model.image_size, data.images
        views = [
            RandomResizedCrop(size, self.least_area, extractor.seed, view=view) for view in (0, 1)
        ]
        shown, first, second = (
            extractor.features(model, images, crop, self.readout, about)
            for crop, about in (
                (CenterCrop(size), "images"),
                (views[0], "first views"),
                (views[1], "second views"),
            )
        )
        plain = shown.vectors
        both = common_images(first, second)
        features = measures_of_features(plain, alignment(*both))
        notes = features.notes
        if len(both[0]) < max(len(first.vectors), len(second.vectors)):
            said = f"Alignment uses the {len(both[0])} images that could be read for both views."
            notes = (*notes, said)
        if model.prototypes is None:
            said = "The network has no projection head, so there are no assignments."
            return Measures(features.metrics, (*notes, said), features.details)
        cls = plain
        if self.readout != CLS:
            cls = extractor.features(
                model, images, CenterCrop(size), CLS, "[CLS] of images"
            ).vectors
        found = assignments(model.prototypes, cls)
        assigned = _of_assignments(found, len(cls), model.prototypes.centring == "sinkhorn")
        return Measures(
            features.metrics + assigned.metrics,
            notes + assigned.notes,
            {**features.details, **assigned.details},
        )


def measures_of_features(plain: Float[Tensor, "M D"], aligned: float) -> Measures:
    """Rank, alignment and uniformity of features, with notes."""
    images, width = plain.shape
    rank = effective_rank(plain)
    share = "effective rank, share of width"
    # An untrained network may have a higher rank, so the rank has no direction.
    metrics = [
        Metric("label_free.rank", rank, "", None, title="effective rank"),
        Metric("label_free.rank_share", 100 * rank / width, "%", None, title=share),
        Metric("label_free.alignment", aligned, "", False, title="alignment"),
    ]
    notes = []
    if images < width:
        notes.append(f"The rank cannot exceed the number of images, {images} (width {width}).")
    if images > 1:
        metrics.append(
            Metric("label_free.uniformity", uniformity(plain), "", False, title="uniformity")
        )
    else:
        notes.append("Uniformity needs pairs of images, and there is only one image.")
    paired = min(images, PAIRED_IMAGES)
    details = {"images": images, "width": width, "images paired for uniformity": paired}
    return Measures(tuple(metrics), tuple(notes), details)


def _of_assignments(found: Assignments, images: int, balanced: bool) -> Measures:
    metrics = (
        Metric("label_free.entropy", found.entropy, "nats", None, title="assignment entropy"),
        Metric("label_free.used", found.used, "prototypes", None, title="prototypes used"),
        Metric("label_free.dead", 100 * found.dead, "%", False, title="dead prototypes"),
    )
    details = {
        "prototypes": found.prototypes,
        "prototypes an image is spread over": math.exp(found.entropy),
    }
    notes = []
    if balanced:
        notes.append(
            f"Assignments are balanced over all {images} images, as each batch was in training: a "
            "collapse shows in their entropy, not in the prototypes used."
        )
    if images < found.prototypes:
        notes.append(
            f"At most {images} of {found.prototypes} prototypes can be used, one for each image; "
            "the others count as dead."
        )
    return Measures(metrics, tuple(notes), details)
