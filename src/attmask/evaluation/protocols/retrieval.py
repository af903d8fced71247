"""Landmark retrieval: a ranking of the database for each query, at three difficulties."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Float, Int64
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation.datasets.landmarks import LandmarkSet
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.long_side import LongSide
from attmask.evaluation.features.readout import CLS, Embedding, MultiScale
from attmask.evaluation.metrics.ranking import (
    DIFFICULTIES,
    Answer,
    Average,
    Difficulty,
    average,
    judge,
)
from attmask.evaluation.metrics.whitening import learn_whitening
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.requirements import check_images
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import Config, setting

MULTI_SCALE = (1.0, 2**-0.5, 0.5)
"""The scales of DINO and iBOT, over which features are averaged."""


class Retrieval(Config):
    """Landmark retrieval by cosine similarity, with DINO's defaults for ImageNet networks."""

    image_size: int = setting(
        224,
        "longer side of an image in pixels; smaller images are not enlarged",
        paper="DINO 224, iBOT 512",
        ge=1,
    )
    scales: tuple[Annotated[float, Field(gt=0, le=4)], ...] = setting(
        (1.0,),
        "scales of each image over which features are averaged",
        paper="DINO 1; iBOT 1, 0.707, 0.5",
        min_length=1,
    )
    equal_scales: bool = setting(
        False,
        "L2-normalise the features of each scale before averaging",
        paper="false",
    )
    queries: Literal["whole", "box"] = setting(
        "whole", "use the whole query image or the box of the landmark", paper="whole"
    )
    whitening: Literal["database"] | Path | None = setting(
        None, "learn PCA whitening on the database or on a folder (null: off)", paper="null"
    )
    whitening_width: int | None = setting(
        None, "number of directions kept by whitening (null: all)", ge=1
    )
    readout: Embedding = setting(CLS, "features to use", paper="[CLS], 1 block")

    def check(self, model: FrozenModel, data: LandmarkSet) -> None:
        """Check the number of blocks and the images for whitening."""
        self.readout.width(model.backbone)
        if isinstance(self.whitening, Path):
            check_images(open_images(self.whitening).train)

    def measure(
        self, model: FrozenModel, data: LandmarkSet, extractor: FeatureExtractor
    ) -> Measures:
        """Mean average precision and precision at 1, 5 and 10, in per cent."""
        readout = MultiScale(self.readout, self.scales, self.equal_scales)
        whole = LongSide(self.image_size)
        boxes = data.boxes if self.queries == "box" else None
        asked = LongSide(self.image_size, boxes)
        database = extractor.features(model, data.database, whole, readout, "database")
        queries = extractor.features(model, data.queries, asked, readout, "queries")
        notes = _unread(data, database, queries)
        if self.whitening is not None:
            learned_on = database.vectors
            if isinstance(self.whitening, Path):
                other = open_images(self.whitening).train
                learned_on = extractor.features(model, other, whole, readout, "whitening").vectors
            whitening = learn_whitening(learned_on, self.whitening_width)
            database, queries = (
                Features(whitening(part.vectors), part.labels) for part in (database, queries)
            )
            kept, width = queries.vectors.shape[1], self.readout.width(model.backbone)
            if kept < min(width, self.whitening_width or width):
                notes.append(f"whitening kept {kept} of {width} directions, which have variance")
        answers = _judged(data, database, queries)
        averages = {difficulty: average(answers[difficulty]) for difficulty in DIFFICULTIES}
        return Measures(
            _metrics(averages),
            (*notes, *_without_answer(averages, len(queries.vectors))),
            {"average precision by query": _by_query(data, queries, answers)},
        )


def rank(database: Float[Tensor, "M D"], queries: Float[Tensor, "Q D"]) -> Int64[np.ndarray, "Q M"]:
    """The database rows for each query, most similar first; ties go to the earlier row."""
    similarity = functional.normalize(queries, dim=1) @ functional.normalize(database, dim=1).T
    return similarity.argsort(dim=1, descending=True, stable=True).numpy()


def _judged(
    data: LandmarkSet, database: Features, queries: Features
) -> dict[Difficulty, list[Answer | None]]:
    """The results of each readable query."""
    # Labels are image indices; rows are not, because unreadable images have no row.
    numbers, asked = _labels(database).numpy(), _labels(queries).tolist()
    rankings = [numbers[rows] for rows in rank(database.vectors, queries.vectors)]
    return {
        difficulty: [
            judge(
                ranking,
                data.truths[query].wanted(difficulty),
                data.truths[query].ignored(difficulty),
            )
            for query, ranking in zip(asked, rankings, strict=True)
        ]
        for difficulty in DIFFICULTIES
    }


def _metrics(averages: dict[Difficulty, Average | None]) -> tuple[Metric, ...]:
    """mAP and mP@k at each difficulty, in per cent."""
    if averages["medium"] is None:
        raise UserError(
            "no query has an easy or hard image in the database; use the official ground truth, or "
            "check that the images can be read"
        )
    given = {name: found for name, found in averages.items() if found is not None}
    return (
        *(
            Metric(
                f"retrieval.{name}_map",
                100 * found.average_precision,
                "%",
                True,
                title=f"{name} mAP",
            )
            for name, found in given.items()
        ),
        *(
            Metric(
                f"retrieval.{name}_precision@{k}", 100 * share, "%", True, title=f"{name} mP@{k}"
            )
            for name, found in given.items()
            for k, share in found.precision.items()
        ),
    )


def _unread(data: LandmarkSet, database: Features, queries: Features) -> list[str]:
    notes = []
    if missing := len(data.database) - len(database.vectors):
        notes.append(f"{missing} unreadable database images count as not retrieved")
    if missing := len(data.queries) - len(queries.vectors):
        notes.append(f"{missing} unreadable queries are left out")
    return notes


def _without_answer(averages: dict[Difficulty, Average | None], queries: int) -> list[str]:
    notes = []
    for difficulty, found in averages.items():
        if found is None:
            notes.append(f"no query has a right image at difficulty {difficulty}")
        elif found.queries < queries:
            left = queries - found.queries
            notes.append(
                f"{left} of {queries} queries have no right image at difficulty {difficulty} and "
                "are left out"
            )
    return notes


def _by_query(
    data: LandmarkSet, queries: Features, answers: dict[Difficulty, list[Answer | None]]
) -> dict[str, Any]:
    """Average precision in per cent, by difficulty and name of the query."""
    names = [data.queries.name(number) for number in _labels(queries).tolist()]
    return {
        difficulty: {
            name: None if answer is None else 100 * answer.average_precision
            for name, answer in zip(names, given, strict=True)
        }
        for difficulty, given in answers.items()
    }


def _labels(features: Features) -> Tensor:
    assert features.labels is not None
    return features.labels
