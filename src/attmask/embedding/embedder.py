"""A frozen network and the images it reads: features batch by batch, in the order of the images."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64

from attmask import distributed
from attmask.embedding.images import ImageRows, Piece
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import ReadBatch
from attmask.evaluation.features.images import say_unreadable
from attmask.evaluation.features.readout import Embedding, PatchMaps, Readout
from attmask.evaluation.features.store import default_cache
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.requirements import check_crop
from attmask.hardware import Precision, default_workers

log = logging.getLogger(__name__)

Tokens = Literal["cls", "gap", "cls+gap", "patches"]


@dataclass(frozen=True, eq=False)
class EmbeddedBatch:
    """The features of consecutive images, with what is known about each.

    Images that cannot be read are left out.
    """

    features: Float32[np.ndarray, "B ..."]
    """B x D, or B x rows x columns x D for patches."""
    names: list[str]
    labels: Int64[np.ndarray, " B"] | None
    classes: Sequence[str]
    """What the labels stand for: `classes[labels[0]]` is the class of the first image."""
    split: str


class ReadRows(NamedTuple):
    """A batch as it was read: its rows, which of them are readable, and the features of these."""

    rows: range
    readable: Bool[np.ndarray, " B"]
    features: torch.Tensor


def readout_of(tokens: Tokens, blocks: int, *, norm_gap: bool) -> Readout:
    """The readout of some tokens of the last blocks."""
    if tokens == "patches":
        return PatchMaps(layers=tuple(range(-blocks, 0)))
    return Embedding(token=tokens, blocks=blocks, norm_gap=norm_gap)


@dataclass(frozen=True, eq=False)
class Embedder:
    """A frozen network, what it is shown and what is read of it."""

    model: FrozenModel
    images: ImageRows
    extractor: FeatureExtractor
    crop: CenterCrop
    readout: Readout

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the features of one image; patches as rows, columns, channels."""
        shape = self.readout.shape(self.model.backbone, self.crop.size_hw)
        if len(shape) == 1:
            return shape
        layers, width, rows, columns = shape
        return rows, columns, layers * width

    def key(self) -> dict[str, Any]:
        """Everything that the features depend on, as JSON."""
        first = self.images.pieces[0].source
        key = self.extractor.key(self.model, first, self.crop, self.readout)
        contents = {piece.split: self.extractor.contents(piece.source) for piece in self.pieces}
        return {**key, "images": contents}

    @property
    def pieces(self) -> Sequence[Piece]:
        """The splits of the images."""
        return self.images.pieces

    def read(self, rows: range) -> Iterator[ReadRows]:
        """Read some rows of one split, batch by batch."""
        piece, begin = self.images.piece(rows.start), rows.start
        batches = self.extractor.stream(
            self.model, piece.source, self.crop, self.readout, indices=piece.indices(rows)
        )
        for batch in batches:
            features = self._laid_out(batch)
            if not bool(features.isfinite().all()):
                raise UserError(
                    f"the features of {self.model.name} for images of {piece.source.root} are not "
                    "finite; its training diverged, so use an earlier checkpoint"
                )
            here = range(begin, begin + len(batch.readable))
            yield ReadRows(here, batch.readable.numpy(), features)
            begin = here.stop

    def share_of(self, wanted: Iterable[range]) -> list[range]:
        """This process's part of some rows, each range inside a split: whole batches, in order.

        Batches begin where those of one process would, so the features are the same to the bit.
        """
        wanted, size = list(wanted), self.extractor.batch_size
        own = distributed.share_of(sum(-(-len(rows) // size) for rows in wanted))
        parts, before = [], 0
        for rows in wanted:
            batches = -(-len(rows) // size)
            first = max(own.start - before, 0)
            part = rows[first * size : max(own.stop - before, 0) * size]
            if len(part):
                parts.append(part)
            before += batches
        return parts

    def batches(self) -> Iterator[EmbeddedBatch]:
        """The features of all images, or in a process group those of this process's share."""
        for rows in self.share_of(piece.rows for piece in self.pieces):
            piece, unread = self.images.piece(rows.start), list[int]()
            for batch in self.read(rows):
                kept = np.flatnonzero(batch.readable)
                unread += (np.flatnonzero(~batch.readable) + batch.rows.start).tolist()
                if not len(kept):
                    continue
                entries = [piece.entry(batch.rows[i]) for i in kept.tolist()]
                labels = [entry.label for entry in entries if entry.label is not None]
                yield EmbeddedBatch(
                    features=batch.features.numpy(),
                    names=[entry.name for entry in entries],
                    labels=np.array(labels, dtype=np.int64) if labels else None,
                    classes=piece.source.classes,
                    split=piece.split,
                )
            if unread:
                indices = [row - piece.rows.start for row in unread]
                say_unreadable(piece.source, indices, asked=len(rows), doing="embedding")

    def _laid_out(self, batch: ReadBatch) -> torch.Tensor:
        """The features of the readable images on the host; the channels of patches come last."""
        values = batch.values.cpu()
        if not bool(batch.readable.all()):
            values = values[batch.readable]
        if values.ndim == 2:
            return values
        return values.permute(0, 3, 4, 1, 2).flatten(3).contiguous()


def make_embedder(
    model: FrozenModel,
    images: ImageRows,
    device: torch.device,
    *,
    readout: Readout,
    image_size: int | None,
    precision: Literal["auto", "bf16", "fp16", "fp32"],
    batch_size: int,
    workers: int | None,
) -> Embedder:
    """An embedder whose image size and blocks fit the network."""
    check_crop(model, image_size)
    crop = CenterCrop(image_size or model.image_size)
    readout.shape(model.backbone, crop.size_hw)  # raises for blocks that do not exist
    extractor = FeatureExtractor(
        device=device,
        precision=Precision.choose(precision, device),
        cache=default_cache(),
        batch_size=batch_size,
        workers=default_workers() if workers is None else workers,
    )
    return Embedder(model, images, extractor, crop, readout)
