"""Features of a frozen network: a crop and a readout of every image, streamed or cached."""

import hashlib
import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from jaxtyping import Int64

from attmask import distributed
from attmask.data.config import DataConfig
from attmask.data.contents import contents
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.crops import Crop
from attmask.evaluation.features.forward import Features, ReadBatch, forward
from attmask.evaluation.features.images import ImageReader, Target, say_unreadable
from attmask.evaluation.features.readout import CLS, PartialReadout, Readout
from attmask.evaluation.features.store import FeatureStore, Share, StoredFeatures
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.progress import counting
from attmask.hardware import Precision

log = logging.getLogger(__name__)

_CODE = 2  # increase it whenever the same images and settings give other features
_TRIED_AGAIN = 64  # unreadable images
_SECONDS_OF_A_SHARED_DISK = 60
_NUMBERS_AT_ONCE = 2**24


@dataclass(frozen=True, eq=False)
class Known:
    """Facts about sources, computed once per evaluation."""

    contents: dict[Source, str] = field(default_factory=dict)
    unreadable: dict[Source, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class FeatureExtractor:
    """Extracts features for all protocols, with its device, precision, cache and workers.

    With several processes, all of them must call the same methods.
    """

    device: torch.device
    precision: Precision
    cache: Path
    batch_size: int = 64
    workers: int = 0
    seed: int = 0
    known: Known = field(default_factory=Known)

    def autocast(self) -> AbstractContextManager[None]:
        """The autocast context of the extractor's precision."""
        return self.precision.autocast()

    def stream(
        self,
        model: FrozenModel,
        source: Source,
        crop: Crop,
        readout: Readout = CLS,
        *,
        indices: Sequence[int] | None = None,
        target: Target | None = None,
    ) -> Iterator[ReadBatch]:
        """Stream the values of some images in order, batch by batch, without the cache.

        `target` is computed for each image, for example its mask. Unreadable images are black and
        marked as not readable.
        """
        reader = ImageReader(source, crop, model.data, target)
        chosen = range(len(source)) if indices is None else indices
        crops = reader.batches(chosen, batch_size=self.batch_size, workers=self.workers)
        backbone = model.backbone.to(self.device)
        return forward(backbone, crops, readout, model.data, autocast=self.autocast)

    def features(
        self,
        model: FrozenModel,
        source: Source,
        crop: Crop,
        readout: Readout = CLS,
        about: str = "images",
    ) -> Features:
        """The values of each readable image of a source, in order, memory-mapped from the cache.

        Each of several processes computes its share, and all of them get all values.
        """
        stored = self._stored(model, source, crop, readout, about)
        whole = len(stored.rows) == len(source)
        if not whole:
            unread = np.setdiff1d(np.arange(len(source)), stored.rows).tolist()
            say_unreadable(source, unread, quiet=source in self.known.unreadable)
            self.known.unreadable[source] = len(unread)
        if not _finite(stored.values):
            raise UserError(
                f"the features of {model.name} for images of {source.root} are not finite; its "
                "training diverged, so evaluate an earlier checkpoint"
            )
        labels = None if source.labels is None else np.array(source.labels[stored.rows], np.int64)
        return Features(
            values=torch.from_numpy(stored.values),
            labels=None if labels is None else torch.from_numpy(labels),
            rows=None if whole else torch.from_numpy(stored.rows),
        )

    def contents(self, source: Source) -> str:
        """The hash of a source, computed once."""
        if source not in self.known.contents:
            self.known.contents[source] = contents(source)
        return self.known.contents[source]

    def unreadable(self, source: Source) -> int:
        """The number of images of a source that could not be read so far."""
        return self.known.unreadable.get(source, 0)

    def key(
        self, model: FrozenModel, source: Source, crop: Crop, readout: Readout = CLS
    ) -> dict[str, Any]:
        """Everything that features depend on."""
        data = model.data
        return {
            "code": _CODE,
            "pillow": PIL.__version__,
            "network": model.digest,
            "images": self.contents(source),
            "crop": crop.describe(),
            "pixels": data.model_dump(
                mode="json", include={"channels", "bits", "max_megapixels", "mean", "std"}
            ),
            "format": self.precision.format,
            "readout": readout.describe(model.backbone),
        }

    def _stored(
        self, model: FrozenModel, source: Source, crop: Crop, readout: Readout, about: str
    ) -> StoredFeatures:
        if len(source) == 0:
            raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")
        key = distributed.from_main(self.key(model, source, crop, readout))
        shape = readout.shape(model.backbone, crop.size_hw)
        store = FeatureStore(self.cache)
        found = store.find(key, shape) or self._part(store, key, model, readout, shape)
        if found is not None and self._reads_more_now(source, model.data, found.rows):
            found = None
        if not distributed.all_agree(found is not None):
            with store.writing(key, len(source), shape) as share:
                self._extract(model, source, crop, readout, about, share)
            found = self._wait_for(store, key, shape)
        rows = None if found is None else hashlib.sha256(found.rows.tobytes()).hexdigest()
        same = rows == distributed.from_main(rows)  # else processes would train on other images
        if not distributed.all_agree(found is not None and same) or found is None:
            raise UserError(
                f"not all processes can read the features in {self.cache}; "
                "choose a shared folder with --cache"
            )
        return found

    def _part(
        self,
        store: FeatureStore,
        key: dict[str, Any],
        model: FrozenModel,
        readout: Readout,
        shape: tuple[int, ...],
    ) -> StoredFeatures | None:
        """The values as a slice of a larger cached readout, for example the last of four blocks."""
        if not isinstance(readout, PartialReadout):
            return None
        for other in store.other_readouts(key):
            where = readout.part_of(other["readout"], model.backbone)
            if where is None or {**other, "readout": key["readout"]} != key:
                continue
            larger = store.find(other)
            if larger is not None and larger.values[:, where].shape[1:] == shape:
                return StoredFeatures(larger.values[:, where], larger.rows)
        return None

    def _reads_more_now(
        self, source: Source, data: DataConfig, rows: Int64[np.ndarray, " m"]
    ) -> bool:
        """Whether an image that could not be read before can be read now."""
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

    def _wait_for(
        self, store: FeatureStore, key: dict[str, Any], shape: tuple[int, ...]
    ) -> StoredFeatures | None:
        """Find features that were just written; a shared disk may need time to show them."""
        patience = time.monotonic() + (_SECONDS_OF_A_SHARED_DISK if distributed.rank() else 5)
        while (found := store.find(key, shape)) is None and time.monotonic() < patience:
            time.sleep(0.5)
        return found

    def _extract(
        self,
        model: FrozenModel,
        source: Source,
        crop: Crop,
        readout: Readout,
        about: str,
        share: Share,
    ) -> None:
        """Compute this process's share of the rows."""
        done = 0
        with counting(f"reading {about}", len(share.rows)) as count:
            for batch in self.stream(model, source, crop, readout, indices=share.rows):
                here = slice(done, done + len(batch.values))
                share.values[here] = batch.values.cpu().numpy()
                share.readable[here] = batch.readable.numpy()
                done += len(batch.values)
                count(len(batch.values))


def _finite(values: np.ndarray) -> bool:
    """Whether all numbers are finite, checked piece by piece."""
    rows = max(1, _NUMBERS_AT_ONCE // max(1, math.prod(values.shape[1:])))
    pieces = range(0, len(values), rows)
    return all(bool(np.isfinite(values[i : i + rows]).all()) for i in pieces)
