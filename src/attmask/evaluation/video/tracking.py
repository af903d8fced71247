"""The objects of a sequence, followed through its frames and measured."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from attmask import atomic
from attmask.data.config import DataConfig
from attmask.data.decode import decode
from attmask.errors import UserError
from attmask.evaluation.datasets.annotations import Mask, as_palette_image
from attmask.evaluation.datasets.sequences import Videos, VideoSequence
from attmask.evaluation.features.forward import ReadBatch
from attmask.evaluation.metrics.video import boundary_accuracy, region_similarity
from attmask.evaluation.reporting.animation import overlay, write_animation
from attmask.evaluation.video.propagation import (
    Propagation,
    Tracker,
    labels_of_patches,
    mask_of_labels,
)
from attmask.evaluation.video.report import Scores


@dataclass(frozen=True, eq=False)
class Tracked:
    """A sequence with its predicted masks, as PNG files, and their scores.

    The first mask is the annotation; it and the last one have no scores.
    """

    sequence: VideoSequence
    scores: Scores
    masks: tuple[bytes, ...]

    def write(self, folder: Path) -> None:
        """Write the masks to `folder`/SEQUENCE/FRAME.png, as the official evaluation wants them."""
        try:
            with atomic.folder(folder / self.sequence.name, replaces=lambda _: True) as part:
                for name, mask in zip(self.sequence.names, self.masks, strict=True):
                    (part / f"{name}.png").write_bytes(mask)
        except OSError as fault:
            raise UserError(
                f"cannot write masks to {folder}: {fault.strerror or fault}; choose another folder "
                "with video.masks"
            ) from fault

    def animate(self, data: Videos, file: Path) -> None:
        """Write an animated picture of the frames with the predicted and the true masks."""
        captions = [self.sequence.name] * len(self.masks)
        for i, frame in enumerate(self.scores.frames, start=1):
            j, f = (100 * float(each[:, i - 1].mean()) for each in (self.scores.j, self.scores.f))
            captions[i] = f"{self.sequence.name}/{frame}   J {j:.1f}   F {f:.1f}"
        write_animation(
            (
                overlay(
                    decode(data.frames, index, DataConfig()),
                    _opened(mask, self.sequence),
                    Mask.read(file).classes(self.sequence.objects),
                    caption,
                )
                for index, mask, file, caption in zip(
                    self.sequence.frames, self.masks, self.sequence.masks, captions, strict=True
                )
            ),
            file,
        )


def _opened(mask: bytes, sequence: VideoSequence) -> UInt8[np.ndarray, "H W"]:
    """The classes of a predicted mask."""
    numbers = np.array(Image.open(io.BytesIO(mask)))
    return np.searchsorted(np.array([0, *sequence.numbers]), numbers).astype(np.uint8)


def follow(
    sequence: VideoSequence,
    batches: Iterable[ReadBatch],
    propagation: Propagation,
    patch_size: int,
    tolerance: float,
) -> Tracked:
    """Propagate the first mask through the frames, and measure all but the first and the last.

    A batch has the patch maps of one frame as values and its annotation as target.
    """
    tracker: Tracker | None = None
    masks: list[bytes] = []
    measured: list[list[tuple[float, float]]] = []
    for batch in batches:
        assert batch.targets is not None
        truth: UInt8[np.ndarray, "H W"] = batch.targets[0].numpy()
        features = batch.values[0].flatten(0, 1)  # blocks and channels, rows, columns
        if tracker is None:
            grid = (features.shape[1], features.shape[2])
            first = labels_of_patches(truth, grid, 1 + len(sequence.objects))
            tracker, predicted = Tracker(propagation, features, first), truth
        else:
            predicted = mask_of_labels(tracker.follow(features), patch_size, truth.shape)
        if 0 < len(masks) < len(sequence.frames) - 1:
            measured.append(_scores(truth, predicted, len(sequence.objects), tolerance))
        masks.append(_encoded(predicted, sequence))
    j, f = np.array(measured, dtype=np.float64).transpose(2, 1, 0)
    scores = Scores(sequence.name, sequence.names[1:-1], sequence.numbers, j, f)
    return Tracked(sequence, scores, tuple(masks))


def _scores(
    truth: UInt8[np.ndarray, "H W"],
    predicted: UInt8[np.ndarray, "H W"],
    objects: int,
    tolerance: float,
) -> list[tuple[float, float]]:
    """J and F of each object in one frame."""
    pairs = [(truth == number, predicted == number) for number in range(1, objects + 1)]
    return [
        (region_similarity(true, ours), boundary_accuracy(true, ours, tolerance))
        for true, ours in pairs
    ]


def _encoded(mask: UInt8[np.ndarray, "H W"], sequence: VideoSequence) -> bytes:
    """A mask of classes as a palette PNG, a hundredth of its size in memory."""
    file = io.BytesIO()
    as_palette_image(mask, sequence.numbers).save(file, format="PNG")
    return file.getvalue()
