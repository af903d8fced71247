"""The report on objects that were followed through videos: metrics, details, worst frames."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Float64

from attmask.evaluation.metrics.video import Statistics, statistics
from attmask.metric import Metric

_COURSE = 11  # positions at which the curve over a sequence is drawn
_NAMED = 3  # worst frames in the note


@dataclass(frozen=True, eq=False)
class Scores:
    """J and F of each object of a sequence in each frame that is measured, from 0 to 1."""

    sequence: str
    frames: tuple[str, ...]
    objects: tuple[int, ...]
    j: Float64[np.ndarray, "objects frames"]
    f: Float64[np.ndarray, "objects frames"]

    @property
    def both(self) -> Float64[np.ndarray, "objects frames"]:
        """J&F, the mean of the two."""
        mean: Float64[np.ndarray, "objects frames"] = (self.j + self.f) / 2
        return mean


@dataclass(frozen=True)
class ObjectSummary:
    """The statistics of one object."""

    sequence: str
    number: int
    j: Statistics
    f: Statistics


@dataclass(frozen=True, eq=False)
class VideoReport:
    """The results of all sequences; every object counts the same."""

    scores: Sequence[Scores]
    threshold: float
    bins: int

    @cached_property
    def objects(self) -> list[ObjectSummary]:
        """The statistics of all objects."""
        return [
            ObjectSummary(
                each.sequence,
                number,
                *(statistics(row, self.threshold, self.bins) for row in (each.j[i], each.f[i])),
            )
            for each in self.scores
            for i, number in enumerate(each.objects)
        ]

    def metrics(self) -> tuple[Metric, ...]:
        """Means over all objects in per cent, J&F first."""
        means = {
            (measure, name): 100 * fmean(asdict(each)[measure][name] for each in self.objects)
            for measure in ("j", "f")
            for name in ("mean", "recall", "decay")
        }
        both = (means["j", "mean"] + means["f", "mean"]) / 2
        return (
            Metric("video.j_and_f", both, "%", True, title="J&F"),
            *(
                Metric(
                    f"video.{measure}_{name}",
                    value,
                    "%",
                    name != "decay",
                    title=f"{measure.upper()}, {name}",
                )
                for (measure, name), value in means.items()
            ),
            Metric("video.objects", len(self.objects), "objects", None, title="objects"),
        )

    def median_sequence(self) -> str:
        """The sequence with the median J&F, the worse one of two."""
        ranked = sorted(self.scores, key=lambda each: (float(each.both.mean()), each.sequence))
        return ranked[(len(ranked) - 1) // 2].sequence

    def worst_frames(self, count: int) -> list[dict[str, Any]]:
        """The frames with the lowest J&F, mean over their objects, the worst first."""
        frames = [
            (float(each.both[:, i].mean()), each, i)
            for each in self.scores
            for i in range(len(each.frames))
        ]
        frames.sort(key=lambda frame: (frame[0], frame[1].sequence, frame[2]))
        return [
            {
                "sequence": each.sequence,
                "frame": each.frames[i],
                "j": _per_cent(each.j[:, i].mean()),
                "f": _per_cent(each.f[:, i].mean()),
            }
            for _, each, i in frames[:count]
        ]

    def notes(self) -> list[str]:
        """The worst frames in one line."""
        worst = [
            f"{frame['sequence']}/{frame['frame']} (J {frame['j']:.1f}, F {frame['f']:.1f})"
            for frame in self.worst_frames(_NAMED)
        ]
        return [f"worst frames: {', '.join(worst)}"]

    def details(self, worst: int) -> Mapping[str, Any]:
        """Every object, the worst frames, and the mean J&F over the course of the sequences."""
        return {
            "objects": [_in_per_cent(each) for each in self.objects],
            "worst frames": self.worst_frames(worst),
            "course": self._course(),
        }

    def _course(self) -> list[list[float]]:
        """Positions in a sequence and the mean J&F of all objects there, both in per cent."""
        positions = np.linspace(0, 1, _COURSE)
        curves = [
            np.interp(positions, np.linspace(0, 1, len(each.frames)), row)
            for each in self.scores
            for row in each.both
        ]
        means = np.mean(curves, axis=0)
        return [[100 * float(x), 100 * float(y)] for x, y in zip(positions, means, strict=True)]


def _per_cent(share: float) -> float:
    return round(100 * float(share), 2)


def _in_per_cent(summary: ObjectSummary) -> dict[str, Any]:
    """One object as JSON."""
    values = {
        f"{measure}_{name}": _per_cent(value)
        for measure, found in (("j", summary.j), ("f", summary.f))
        for name, value in asdict(found).items()
    }
    return {"sequence": summary.sequence, "object": summary.number, **values}
