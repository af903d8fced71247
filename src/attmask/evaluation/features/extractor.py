"""Where evaluations are computed: the device, the processes that read, and the features kept."""

import logging
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from jaxtyping import Bool, Int64, UInt8
from torch import Tensor

from attmask import distributed
from attmask.data.config import DataConfig
from attmask.data.contents import contents
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.forward import Features, frozen, normalise, read_in_order
from attmask.evaluation.features.readout import Encoding
from attmask.evaluation.features.store import FeatureCache, Share, Stored
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.progress import counting
from attmask.hardware import Precision

log = logging.getLogger(__name__)

_CODE = 1  # counts whenever the same images and settings give other features
_TRIED_AGAIN = 64  # images that could not be read
_SECONDS_OF_A_SHARED_DISK = 60
_BLACK = 32  # pixels of what stands for an unreadable picture
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of sources and need not be found out twice in one evaluation."""

    contents: dict[Source, str] = field(default_factory=dict)
    unreadable: dict[Source, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """What every protocol is given: a way to compute, and features that are extracted once.

    With several processes all of them call the same methods; each reads its share of the images.
    """

    device: torch.device
    precision: Precision
    cache: Path
    batch_size: int = 64
    workers: int = 0
    seed: int = 0
    known: Known = field(default_factory=Known)

    def autocast(self) -> AbstractContextManager[None]:
        """Forward passes in the extractor's number format."""
        return self.precision.autocast()

    def features(
        self, model: FrozenModel, source: Source, encoding: Encoding, about: str = "images"
    ) -> Features:
        """One vector for each readable image of a source, in its order, mapped from the cache."""
        stored = self._stored(model, source, encoding, about)
        whole = len(stored.rows) == len(source)
        if not whole:
            self._say_unreadable(source, stored.rows)
        if not _finite(stored.vectors):
            raise UserError(
                f"{model.name} gives features that are not finite for images of {source.root}; "
                "its training diverged: evaluate an earlier checkpoint"
            )
        labels = None if source.labels is None else np.array(source.labels[stored.rows], np.int64)
        return Features(
            vectors=torch.from_numpy(stored.vectors),
            labels=None if labels is None else torch.from_numpy(labels),
            rows=None if whole else torch.from_numpy(stored.rows),
        )

    def contents(self, source: Source) -> str:
        """The hash of a source, computed once."""
        if source not in self.known.contents:
            self.known.contents[source] = contents(source)
        return self.known.contents[source]

    def unreadable(self, source: Source) -> int:
        """How many images of a source could not be read so far."""
        return self.known.unreadable.get(source, 0)

    def _say_unreadable(self, source: Source, rows: Int64[np.ndarray, " m"]) -> None:
        unread = np.setdiff1d(np.arange(len(source)), rows)
        told = f"{len(unread)} of {len(source)} images of {source.root} cannot be read"
        told = f"{told}, the first is {source.place(int(unread[0]))}"
        if len(unread) == len(source):
            raise UserError(f"{told}; check that these files are pictures")
        if source not in self.known.unreadable:
            log.warning("%s; they are left out of the evaluation", told)
        self.known.unreadable[source] = len(unread)

    def _stored(self, model: FrozenModel, source: Source, encoding: Encoding, about: str) -> Stored:
        if len(source) == 0:
            raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")
        key = distributed.from_main(self.key(model, source, encoding))
        width = encoding.width(model.backbone)
        cache = FeatureCache(self.cache)
        found = cache.find(key, width)
        if found is not None and self._reads_more_now(source, model.data, found.rows):
            found = None
        if not distributed.all_agree(found is not None):
            with cache.writing(key, len(source), width) as share:
                self._extract(model, source, encoding, about, share)
            found = self._wait_for(cache, key, width)
        if not distributed.all_agree(found is not None) or found is None:
            raise UserError(
                f"the features in {self.cache} cannot be read by all processes; "
                "choose a folder that all of them share with --cache"
            )
        return found

    def _reads_more_now(
        self, source: Source, data: DataConfig, rows: Int64[np.ndarray, " m"]
    ) -> bool:
        """Whether an image that could not be read once can be read now: a disk has its days."""
        if len(rows) == len(source) or source in self.known.unreadable:
            return False
        unread = np.setdiff1d(np.arange(len(source)), rows)
        for index in unread[:_TRIED_AGAIN].tolist():
            try:
                decode(source, index, data)
            except UnreadableImageError:
                continue
            return True
        return False

    def _wait_for(self, cache: FeatureCache, key: dict[str, Any], width: int) -> Stored | None:
        """Features that were just written; a shared disk may show them to others a little later."""
        patience = time.monotonic() + (_SECONDS_OF_A_SHARED_DISK if distributed.rank() else 0)
        while (found := cache.find(key, width)) is None and time.monotonic() < patience:
            time.sleep(0.5)
        return found

    def key(self, model: FrozenModel, source: Source, encoding: Encoding) -> dict[str, Any]:
        """All that features depend on."""
        data = model.data
        return {
            "code": _CODE,
            "pillow": PIL.__version__,
            "network": model.digest,
            "images": self.contents(source),
            "encoding": encoding.describe(),
            "pixels": data.model_dump(
                mode="json", include={"channels", "bits", "max_megapixels", "mean", "std"}
            ),
            "format": self.precision.format,
        }

    def _extract(
        self, model: FrozenModel, source: Source, encoding: Encoding, about: str, share: Share
    ) -> None:
        """The pictures of this process's share through the network, batch after batch."""
        size = self.batch_size if encoding.batched else 1
        read = partial(_read_or_blank, source, encoding, model.data)
        batches = read_in_order(read, share.rows, batch_size=size, workers=self.workers)
        backbone = model.backbone.to(self.device)
        done = 0
        with frozen(backbone), counting(f"reading {about}", len(share.rows)) as count:
            for crops, readable in batches:
                images = normalise(
                    crops.to(self.device, non_blocking=True), model.data.mean, model.data.std
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
