"""Video object segmentation: the mask of the first frame, propagated by the similarity of patches.

The protocol of DINO on DAVIS 2017, semi-supervised; nothing is trained.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Annotated

from pydantic import Field

from attmask import distributed
from attmask.agreement import together
from attmask.data.config import IMAGENET_MEAN, IMAGENET_STD, DataConfig
from attmask.errors import UserError
from attmask.evaluation.datasets.sequences import Videos, VideoSequence
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Count, ReadBatch
from attmask.evaluation.features.native_size import whole_patches
from attmask.evaluation.features.readout import PatchMaps, layer_numbers
from attmask.evaluation.features.short_side import ShortSide
from attmask.evaluation.metrics.video import BOUNDARY_TOLERANCE, DECAY_BINS, RECALL_THRESHOLD
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.plot import draw_curves
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.task import Measures
from attmask.evaluation.video.propagation import Propagation
from attmask.evaluation.video.report import VideoReport
from attmask.evaluation.video.tracking import Tracked, follow
from attmask.settings import Config, setting

DINO_STD = (0.228, 0.224, 0.225)
_DINO_MULTIPLE = 64


class VideoSegmentation(Config):
    """Propagates the objects of the first frame through a sequence, and measures J and F."""

    short_side: int = setting(
        480,
        "shorter side of the frames in pixels, shortened to whole patches",
        paper="480",
        ge=1,
    )
    multiple: int | None = setting(
        None,
        "shorten the longer side to a multiple of this number of pixels (null: 64 if the patch "
        "size divides it, else the patch size)",
        paper="64",
        ge=1,
    )
    mean: tuple[float, ...] | None = setting(
        None, "mean of the input (null: the network's own)", paper="0.485, 0.456, 0.406"
    )
    std: tuple[Annotated[float, Field(gt=0)], ...] | None = setting(
        None,
        "std of the input (null: DINO's 0.228, 0.224, 0.225 for networks with ImageNet's mean and "
        "std, else the network's own)",
        paper="0.228, 0.224, 0.225",
    )
    readout: PatchMaps = setting(
        PatchMaps(), "patches that are compared", paper="the last block after the final norm"
    )
    context_frames: int = setting(
        7, "number of last frames whose labels are propagated, besides the first", paper="7", ge=0
    )
    radius: int = setting(
        12,
        "patches to each side that a patch is compared with (0: all of the frame)",
        paper="12",
        ge=0,
    )
    top_k: int = setting(
        5, "number of most similar patches whose labels are averaged", paper="5", ge=1
    )
    temperature: float = setting(
        0.1, "temperature of the weights exp(similarity / temperature)", paper="0.1", gt=0
    )
    boundary_tolerance: float = setting(
        BOUNDARY_TOLERANCE,
        "distance at which boundaries match in F, as a share of the image diagonal",
        paper="0.008",
        gt=0,
        lt=1,
    )
    recall_threshold: float = setting(
        RECALL_THRESHOLD, "J or F above which a frame counts in the recall", paper="0.5", ge=0, lt=1
    )
    decay_bins: int = setting(
        DECAY_BINS, "parts of a sequence, of which the decay compares the ends", paper="4", ge=1
    )
    worst: int = setting(10, "number of worst frames in the card", ge=0)
    animate: str | None = setting(
        None, "sequence of the animated picture (null: that of the median J&F)"
    )
    masks: Path | None = setting(
        None,
        "folder for the predicted masks, NETWORK/SEQUENCE/FRAME.png with a palette, as the "
        "official evaluation reads them (null: not written)",
    )

    def check(self, model: FrozenModel, data: Videos) -> None:
        """Check layers, sizes, mean and std, and the sequence to draw."""
        layer_numbers(self.readout.layers, model.backbone)
        self._crop(model)
        for name, given in (("mean", self.mean), ("std", self.std)):
            if given is not None and len(given) not in (1, model.data.channels):
                raise UserError(
                    f"video.{name} has {len(given)} values for {model.data.channels} channels; "
                    "give one per channel, or one for all"
                )
        names = [sequence.name for sequence in data.sequences]
        if self.animate is not None and self.animate not in names:
            raise UserError(
                f"video.animate={self.animate} is not among the sequences; use one of "
                f"{', '.join(names[:8])}{', ...' if len(names) > 8 else ''}"
            )

    def shown_size(self, model: FrozenModel) -> int:
        """The shorter side."""
        return whole_patches(self.short_side, model.backbone.patch_size)

    def measure(self, model: FrozenModel, data: Videos, extractor: FeatureExtractor) -> Measures:
        """J and F of all objects; each process takes some of the sequences."""
        own = data.sequences[distributed.rank() :: distributed.world_size()]
        shown, crop = self._normalised(model), self._crop(model)
        with together():
            tracked = list(self._tracked(shown, crop, data, own, extractor))
        everywhere = chain(*distributed.gather([each.scores for each in tracked]))
        scores = {each.sequence: each for each in everywhere}
        report = VideoReport(
            [scores[sequence.name] for sequence in data.sequences],
            self.recall_threshold,
            self.decay_bins,
        )
        chosen = self.animate or report.median_sequence()
        key = json.dumps([self.model_dump(mode="json"), extractor.contents(data.frames), chosen])
        name = f"{model.digest[:16]}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        file = extractor.cache / "plots" / f"video-{name}.webp"
        faults = [
            fault for fault in distributed.gather(_animated(tracked, chosen, data, file)) if fault
        ]
        return Measures(
            metrics=report.metrics(),
            notes=(*_told(data, crop, shown.data, model.data), *report.notes(), *faults),
            details={
                **report.details(self.worst),
                "mean": list(shown.data.mean),
                "std": list(shown.data.std),
                "animated": chosen,
            },
            files=() if faults else (file,),
        )

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Plot J&F over the course of the sequences."""
        draw_curves(
            {card.checkpoint: [tuple(point) for point in card.details["course"]] for card in cards},
            file,
            title="Objects followed through a video",
            across="position in the sequence, per cent",
            up="J&F, mean over objects, per cent",
        )

    def propagation(self) -> Propagation:
        """The settings of the propagation."""
        return Propagation(self.context_frames, self.radius, self.top_k, self.temperature)

    def _crop(self, model: FrozenModel) -> ShortSide:
        patch = model.backbone.patch_size
        multiple = self.multiple or (patch if _DINO_MULTIPLE % patch else _DINO_MULTIPLE)
        if multiple % patch:
            raise UserError(
                f"video.multiple={multiple} is not a multiple of the patch size {patch}; use "
                f"{whole_patches(multiple, patch)}"
            )
        return ShortSide(self.short_side, multiple, patch)

    def _normalised(self, model: FrozenModel) -> FrozenModel:
        """The network with the mean and std of this protocol."""
        own = model.data
        is_imagenet = own.mean == IMAGENET_MEAN and own.std == IMAGENET_STD
        std = self.std or (DINO_STD if is_imagenet else own.std)
        data = own.model_copy(update={"mean": self.mean or own.mean, "std": std})
        return replace(model, data=data)

    def _tracked(
        self,
        model: FrozenModel,
        crop: ShortSide,
        data: Videos,
        sequences: Sequence[VideoSequence],
        extractor: FeatureExtractor,
    ) -> Iterator[Tracked]:
        """Each sequence with its masks; the frames of all are read one after the other."""
        frames = [frame for sequence in sequences for frame in sequence.frames]
        batches = extractor.stream(
            model, data.frames, crop, self.readout, indices=frames, target=data.annotations
        )
        with counting("following objects through frames", len(frames)) as count:
            read = _checked(batches, frames, model, data, count)
            for sequence in sequences:
                tracked = follow(
                    sequence,
                    islice(read, len(sequence.frames)),
                    self.propagation(),
                    crop.patch_size,
                    self.boundary_tolerance,
                )
                if self.masks is not None:
                    tracked.write(self.masks / re.sub(r"[^\w.@+-]+", "_", model.name))
                yield tracked


def _checked(
    batches: Iterator[ReadBatch],
    frames: Sequence[int],
    model: FrozenModel,
    data: Videos,
    count: Count,
) -> Iterator[ReadBatch]:
    """Pass the frames on; raise an error for one that cannot be read or has no finite features."""
    for frame, batch in zip(frames, batches, strict=True):
        if not bool(batch.readable.all()):
            raise UserError(
                f"cannot read the frame {data.frames.place(frame)}; labels are propagated from "
                "frame to frame, so replace it"
            )
        if not bool(batch.values.isfinite().all()):
            raise UserError(
                f"the features of {model.name} for {data.frames.place(frame)} are not finite; its "
                "training diverged, so evaluate an earlier checkpoint"
            )
        count(1)
        yield batch


def _animated(tracked: Sequence[Tracked], chosen: str, data: Videos, file: Path) -> str:
    """Draw the chosen sequence if it is among these; the results are kept without a picture."""
    try:
        for each in tracked:
            if each.sequence.name == chosen:
                each.animate(data, file)
    except UserError as fault:
        return f"no animation was drawn: {fault}"
    return ""


def _told(data: Videos, crop: ShortSide, used: DataConfig, own: DataConfig) -> Iterator[str]:
    """How large frames are shown, one line for each size, and how they are normalised."""
    for height, width in dict.fromkeys(sequence.size_hw for sequence in data.sequences):
        shown_h, shown_w = crop.shown_hw((height, width))
        yield (
            f"frames of {width} x {height} pixels are shown at {shown_w} x {shown_h}, "
            f"{shown_w // crop.patch_size} x {shown_h // crop.patch_size} patches"
        )
    if (used.mean, used.std) != (own.mean, own.std):
        mean, std = (", ".join(f"{value:g}" for value in each) for each in (used.mean, used.std))
        yield f"frames are normalised by mean {mean} and std {std}"
