"""Recall@k: whether one of the k nearest images has the same class."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float64, Int64
from pydantic import Field
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.datasets.galleries import Gallery
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import CLS, Embedding
from attmask.evaluation.metrics.neighbours import nearest
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import Config, setting

_ROWS_AT_ONCE = 65_536
_ALONE = "recall compares each image with others, but there is only one; give at least two"


class Recall(Config):
    """Nearest neighbours of every test image among the others, or of queries in a gallery."""

    ks: tuple[Annotated[int, Field(ge=1)], ...] = setting(
        (1, 2, 4, 8),
        "numbers of neighbours; the first is the main result",
        paper="1, 2, 4; SOP 1, 10, 100; In-Shop 1, 10, 20",
        min_length=1,
    )
    image_size: int | None = setting(
        None, "side of the centre crop in pixels (null: the network's own)", paper="224", ge=1
    )
    readout: Embedding = setting(CLS, "features to use", paper="[CLS], 1 block")

    def check(self, model: FrozenModel, data: Gallery) -> None:
        """Check that there are enough images, the crop size and the number of blocks."""
        check_images(data.queries, *([] if data.gallery is None else [data.gallery]))
        if data.gallery is None and len(data.queries) < 2:
            raise UserError(_ALONE)
        check_crop(model, self.image_size, self.readout)

    def measure(self, model: FrozenModel, data: Gallery, extractor: FeatureExtractor) -> Measures:
        """Recall at each k, R-precision and MAP@R, in per cent."""
        crop = CenterCrop(self.image_size or model.image_size)
        queries = extractor.features(model, data.queries, crop, self.readout, "queries")
        gallery = None
        if data.gallery is not None:
            gallery = extractor.features(model, data.gallery, crop, self.readout, "gallery")
        found = look_up(queries, gallery, self.ks, device=extractor.device)
        return Measures(
            (
                *(
                    Metric(f"recall.recall@{k}", 100 * share, "%", True, title=f"Recall@{k}")
                    for k, share in found.recall.items()
                ),
                Metric(
                    "recall.r_precision", 100 * found.r_precision, "%", True, title="R-precision"
                ),
                Metric("recall.map_at_r", 100 * found.map_at_r, "%", True, title="MAP@R"),
            ),
            tuple(_notes(found, self.ks)),
        )


@dataclass(frozen=True)
class RecallResult:
    """Means over all queries, from 0 to 1.

    R is the number of gallery images of a query's class. R-precision is their share among the R
    nearest; MAP@R also takes their order into account (Musgrave et al. 2020, A Metric Learning
    Reality Check).
    """

    recall: Mapping[int, float]
    r_precision: float
    map_at_r: float
    queries: int
    alone: int
    """Queries whose class has no image in the gallery; they count as missed."""
    others: int
    """The number of images that each query is compared with."""


def look_up(
    queries: Features,
    gallery: Features | None,
    ks: Sequence[int],
    *,
    device: torch.device | None = None,
) -> RecallResult:
    """Search every query in the gallery, or among all other queries if that is None.

    Ties in similarity go to the earlier image.
    """
    bank = queries if gallery is None else gallery
    asked, known = _checked(queries, "queries"), _checked(bank, "gallery")
    others = len(known) - (gallery is None)
    if others < 1:
        raise UserError(_ALONE)
    sizes = torch.bincount(known, minlength=int(asked.max()) + 1)
    relevant = sizes[asked] - int(gallery is None)
    depth = min(max(*ks, int(relevant.max())), others)
    hit = dict.fromkeys(ks, 0)
    r_precision = map_at_r = 0.0
    done = 0
    for _, index in nearest(
        bank.vectors, queries.vectors, depth, exclude_self=gallery is None, device=device
    ):
        here = slice(done, done + len(index))
        right = known[index] == asked[here, None]
        for k in hit:
            hit[k] += int(right[:, :k].any(dim=1).sum())
        precision, mean = _up_to_r(right, relevant[here])
        r_precision, map_at_r = r_precision + float(precision.sum()), map_at_r + float(mean.sum())
        done += len(index)
    return RecallResult(
        {k: count / done for k, count in hit.items()},
        r_precision / done,
        map_at_r / done,
        done,
        int((relevant == 0).sum()),
        others,
    )


def _up_to_r(
    right: Bool[Tensor, "q k"], relevant: Int64[Tensor, "q"]
) -> tuple[Float64[Tensor, "q"], Float64[Tensor, "q"]]:
    """R-precision and average precision of each query, both up to rank R; 0 where R is 0."""
    deepest = max(1, int(relevant.max()))
    rank = torch.arange(1, min(deepest, right.shape[1]) + 1)
    kept = right[:, : len(rank)] & (rank <= relevant[:, None])
    wanted = relevant.clamp_min(1).double()
    precision = kept.cumsum(dim=1) / rank.double()
    return kept.sum(dim=1) / wanted, (precision * kept).sum(dim=1) / wanted


def _checked(features: Features, name: str) -> Int64[Tensor, "M"]:
    if features.labels is None or not len(features.labels):
        raise UserError(f"the {name} have no labels; use one folder per class")
    if not all(bool(rows.isfinite().all()) for rows in features.vectors.split(_ROWS_AT_ONCE)):
        raise UserError(f"the {name} have features that are not finite; the run diverged")
    return features.labels


def _notes(found: RecallResult, ks: Sequence[int]) -> list[str]:
    notes = []
    if found.alone:
        notes.append(
            f"{found.alone} of {found.queries} queries have no other image of their class; "
            "they count as missed"
        )
    if too_many := [k for k in ks if k > found.others]:
        named = ", ".join(map(str, too_many))
        notes.append(f"k = {named} is more than the {found.others} other images; all are used")
    return notes
