"""Where evaluations are computed: the device, the processes that read, and the features kept."""

import logging
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, UInt8
from torch import Tensor

from attmask import distributed
from attmask.data.contents import contents
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.source import Source
from attmask.data.sources import DataConfig
from attmask.errors import UserError
from attmask.evaluation.cache import FeatureCache, Share, Stored
from attmask.evaluation.encoding import Encoding
from attmask.evaluation.features import Features, frozen, normalise, read_in_order
from attmask.evaluation.progress import counting
from attmask.evaluation.subject import Subject
from attmask.hardware import Precision

log = logging.getLogger(__name__)

_BLACK = 32  # pixels of what stands for an unreadable picture
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class Bench:
    """What every protocol is given: a way to compute, and features that are extracted once.

    With several processes all of them call the same methods; each reads its share of the images.
    """

    device: torch.device
    precision: Precision
    cache: Path
    batch_size: int = 64
    workers: int = 0
    seed: int = 0

    def autocast(self) -> AbstractContextManager[None]:
        """Forward passes in the bench's number format."""
        return self.precision.autocast()

    def features(
        self, subject: Subject, source: Source, encoding: Encoding, about: str = "images"
    ) -> Features:
        """One vector for each readable image of a source, in its order, mapped from the cache."""
        stored = self._stored(subject, source, encoding, about)
        unread = np.flatnonzero(~stored.readable)
        if len(unread):
            told = f"{len(unread)} of {len(source)} images of {source.root} cannot be read"
            told = f"{told}, the first is {source.place(int(unread[0]))}"
            if len(unread) == len(source):
                raise UserError(f"{told}; check that these files are pictures")
            log.warning("%s; they are left out of the evaluation", told)
        kept = np.flatnonzero(stored.readable) if len(unread) else None
        vectors = stored.vectors if kept is None else stored.vectors[kept]
        labels = source.labels if kept is None or source.labels is None else source.labels[kept]
        if not _finite(vectors):
            raise UserError(
                f"{subject.name} gives features that are not finite for images of {source.root}; "
                "its training diverged: evaluate an earlier checkpoint"
            )
        return Features(
            vectors=torch.from_numpy(vectors),
            labels=None if labels is None else torch.from_numpy(np.array(labels, dtype=np.int64)),
        )

    def _stored(self, subject: Subject, source: Source, encoding: Encoding, about: str) -> Stored:
        if len(source) == 0:
            raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")
        key = self.key(subject, source, encoding)
        width = encoding.width(subject.backbone)
        cache = FeatureCache(self.cache)
        found = cache.find(key, len(source), width)
        if not distributed.all_agree(found is not None):
            with cache.writing(key, len(source), width) as share:
                self._extract(subject, source, encoding, about, share)
            found = cache.find(key, len(source), width)
        if found is None:
            raise UserError(
                f"the features in {self.cache} cannot be read by all processes; "
                "choose a folder that all of them share with --cache"
            )
        return found

    def key(self, subject: Subject, source: Source, encoding: Encoding) -> dict[str, Any]:
        """All that features depend on."""
        data = subject.data
        return {
            "network": subject.digest,
            "images": contents(source),
            "encoding": encoding.describe(),
            "pixels": data.model_dump(
                mode="json", include={"channels", "bits", "max_megapixels", "mean", "std"}
            ),
            "format": self.precision.format,
        }

    def _extract(
        self, subject: Subject, source: Source, encoding: Encoding, about: str, share: Share
    ) -> None:
        """The pictures of this process's share through the network, batch after batch."""
        size = self.batch_size if encoding.batched else 1
        read = partial(_read_or_blank, source, encoding, subject.data)
        batches = read_in_order(read, share.rows, batch_size=size, workers=self.workers)
        backbone = subject.backbone.to(self.device)
        done = 0
        with frozen(backbone), counting(f"reading {about}", len(share.rows)) as count:
            for crops, readable in batches:
                images = normalise(
                    crops.to(self.device, non_blocking=True), subject.data.mean, subject.data.std
                )
                with self.autocast():
                    vectors = encoding.vectors(backbone, images)
                here = slice(done, done + len(crops))
                share.vectors[here] = vectors.float().cpu().numpy()
                share.readable[here] = readable.numpy()
                done += len(crops)
                count(len(crops))


def _read_or_blank(
    source: Source, encoding: Encoding, data: DataConfig, index: int
) -> tuple[UInt8[Tensor, "C height width"], Bool[Tensor, ""]]:
    """What is shown of an image and that it was read, or of a black one and that it was not."""
    try:
        return encoding.crop(decode(source, index, data), index), torch.tensor(True)
    except UnreadableImageError:
        black = np.zeros((_BLACK, _BLACK, data.channels), dtype=np.uint8)
        return encoding.crop(black, index), torch.tensor(False)


def _finite(vectors: np.ndarray) -> bool:
    """Whether all numbers are finite, looked at piece by piece."""
    pieces = range(0, len(vectors), _ROWS_AT_ONCE)
    return all(bool(np.isfinite(vectors[i : i + _ROWS_AT_ONCE]).all()) for i in pieces)
