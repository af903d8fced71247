"""Measures of the teacher that tell a collapse: features, attention and the pixels it sees."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attmask import distributed
from attmask.data.views import Views
from attmask.metric import Metric
from attmask.models.backbone import Summary

OUTLIER = 3.0
"""A patch whose norm is more than so many times the median of its image is an outlier."""
FEATURES = 128
"""Rank and spread use so many features of a step, or a few more with many processes."""
_EPSILON = 1e-7  # of RankMe, added to each normalised singular value


@dataclass(frozen=True)
class Health:
    """The health of a micro-batch, still on the device."""

    features: Float[Tensor, "rows D"]
    """`[CLS]` of the teacher's crops."""
    attention_entropy: Float[Tensor, ""]
    attention_outliers: Float[Tensor, ""]
    view_contrast: Float[Tensor, ""]

    @classmethod
    @torch.no_grad()
    def of(cls, summary: Summary, views: Views) -> "Health":
        """Measure what the teacher saw; this does not wait for the device."""
        return cls(
            features=summary.cls[:FEATURES],
            attention_entropy=attention_entropy(summary.attention),
            attention_outliers=attention_outliers(summary.attention, summary.norms),
            view_contrast=contrast(views.globals[0, :FEATURES]),
        )


def health_metrics(parts: Sequence[Health]) -> tuple[Metric, ...]:
    """The health of a step from that of its micro-batches; all processes take part."""
    entropy, outliers, of_views = (
        fmean(float(getattr(part, name)) for part in parts)
        for name in ("attention_entropy", "attention_outliers", "view_contrast")
    )
    features = features_of_all([part.features for part in parts])
    return (
        Metric(
            "health.feature_rank",
            effective_rank(features),
            "",
            True,
            title="effective rank of the teacher's features",
        ),
        Metric(
            "health.feature_spread",
            spread(features),
            "",
            None,
            title="spread of the teacher's features",
        ),
        Metric(
            "health.attention_entropy",
            entropy,
            "",
            None,
            title="entropy of the [CLS] attention (1: uniform)",
        ),
        Metric(
            "health.attention_outliers",
            100 * outliers,
            "%",
            None,
            title="attention on patches of very large norm",
        ),
        Metric("health.view_contrast", of_views, "std", None, title="contrast inside the views"),
    )


def features_of_all(parts: Sequence[Float[Tensor, "rows D"]]) -> Float[Tensor, "every D"]:
    """Features of a step on the host, an equal number of every process."""
    each = math.ceil(FEATURES / distributed.world_size())
    return distributed.gather_rows(torch.cat(list(parts))[:each].cpu().double())


def effective_rank(features: Float[Tensor, "rows D"]) -> float:
    """The exponential of the entropy of the singular values (RankMe); 1 if all are alike.

    The evaluations measure the same on many images; here the few of a batch limit it. It is not a
    number where the features of a training that diverges are none.
    """
    if not features.isfinite().all():
        return math.nan
    most = min(features.shape)
    values = torch.linalg.eigvalsh(features @ features.T)[-most:].clamp_min(0).sqrt()
    shares = values / values.sum().clamp_min(torch.finfo(values.dtype).tiny) + _EPSILON
    return math.exp(float(torch.special.entr(shares).sum()))


def spread(features: Float[Tensor, "rows D"]) -> float:
    """The mean squared distance to the mean on the unit sphere: 0 (all alike) to 1."""
    return float(1 - F.normalize(features, dim=1).mean(dim=0).square().sum())


def attention_entropy(attention: Float[Tensor, "B N"]) -> Float[Tensor, ""]:
    """The entropy over patches divided by ln N, mean over images: 1 is uniform."""
    shares = _shares(attention)
    most = max(math.log(attention.shape[1]), 1e-6)  # a single patch has no entropy
    entropy: Tensor = torch.special.entr(shares).sum(dim=1).mean() / most
    return entropy


def attention_outliers(
    attention: Float[Tensor, "B N"], norms: Float[Tensor, "B N"]
) -> Float[Tensor, ""]:
    """The share of the attention on patches of very large norm, mean over images."""
    is_outlier = norms > OUTLIER * norms.median(dim=1, keepdim=True).values
    share: Tensor = (_shares(attention) * is_outlier).sum(dim=1).mean()
    return share


def contrast(views: Float[Tensor, "B C height width"]) -> Float[Tensor, ""]:
    """The standard deviation of pixels inside a view, mean over channels and views."""
    # Not `std`, which is twenty times as slow on a CPU; without the first pixel's value, because
    # the difference of two large squares would not be zero for a blank view.
    pixels = views - views[..., :1, :1]
    mean, of_squares = pixels.mean(dim=(-2, -1)), pixels.square().mean(dim=(-2, -1))
    deviation: Tensor = (of_squares - mean.square()).clamp_min(0).sqrt().mean()
    return deviation


def _shares(attention: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """The attention over patches alone: `[CLS]` also attends to itself and to registers."""
    return attention / attention.sum(dim=1, keepdim=True)
