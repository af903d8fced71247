"""Everything on the page of one run that needs its network and its images."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attmask import checkpoint
from attmask.data.images import Images
from attmask.errors import UserError
from attmask.evaluation.features.forward import Autocast, forward
from attmask.evaluation.features.readout import CLS
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.progress import counting
from attmask.hardware import Precision, choose_device
from attmask.html_report import snapshots
from attmask.html_report.embeddings import map_of, odd_of
from attmask.html_report.gallery import Gallery, gallery_of
from attmask.html_report.probes import FEATURES, patches_of, probe_of, similarity_of, studio_of
from attmask.html_report.snapshots import Snapshot, neighbours_of, pca_of, snapshot
from attmask.run_config import RunConfig
from attmask.tuning.config import TunedConfig

NOTHING: dict[str, Any] = dict.fromkeys(
    ("probe", "studio", "similarity", "pca", "map", "neighbours", "odd")
)
"""The pictures of a run whose network or images are not at hand."""
_BATCH = 64

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Reading:
    """How networks are read for a report."""

    device: torch.device
    autocast: Autocast
    check: Callable[[], None]
    """Called between two batches; it may raise to end the report."""
    looks_back: bool = True
    """Whether earlier checkpoints are read too, which takes longer."""

    @classmethod
    def of(
        cls,
        config: RunConfig,
        device: str,
        check: Callable[[], None] = lambda: None,
        looks_back: bool = True,
    ) -> "Reading":
        """In the number format of a training, on a device."""
        chosen = choose_device(device)
        return cls(
            chosen, Precision.choose(config.train.precision, chosen).autocast, check, looks_back
        )

    def load(self, named: str) -> FrozenModel:
        """A network on the device."""
        self.check()
        model = load_model(named)
        model.backbone.to(self.device)
        return model

    def newest(self, run: Path, config: RunConfig) -> FrozenModel:
        """The network of a run as it was last saved; before the first checkpoint the untrained."""
        if checkpoint.newest(run / "checkpoints") is None:
            return self.load(f"{run}@untrained")
        return self.load(f"{run}@last" if isinstance(config, TunedConfig) else f"{run}@teacher")

    def embeddings(self, model: FrozenModel, gallery: Gallery) -> Float[Tensor, "M D"]:
        """The [CLS] tokens of all images."""
        vectors = []
        batches = gallery.crops.batches(_BATCH)
        with counting("reading images for the report", len(gallery.crops)) as count:
            for batch in forward(model.backbone, batches, CLS, model.data, autocast=self.autocast):
                self.check()
                vectors.append(batch.values.cpu())
                count(len(batch.values))
        found = torch.cat(vectors)
        if not found.isfinite().all():
            raise UserError(
                f"the features of {model.name} are not finite; its training diverged, so go back "
                "to an earlier checkpoint"
            )
        return found

    def snapshot(self, model: FrozenModel, gallery: Gallery) -> Snapshot:
        """The snapshot of a network of a run."""
        patches = patches_of(model, gallery, self.autocast)
        return snapshot(epoch_of(model), patches, self.embeddings(model, gallery), gallery)


def pictures_of(
    run: Path, config: RunConfig, images: Images, reading: Reading, room: float
) -> dict[str, Any]:
    """The pictures of a run in the shape of the page, in about `room` bytes."""
    model = reading.newest(run, config)
    gallery = gallery_of(images, model, reading.check)
    patches = patches_of(model, gallery, reading.autocast)
    embeddings = reading.embeddings(model, gallery)
    now = snapshot(epoch_of(model), patches, embeddings, gallery)
    snapshots.keep(run, now, gallery)
    taken = snapshots.kept(run, gallery) | {now.epoch: now}
    for named in _earlier(run, config, taken) if reading.looks_back else ():
        try:
            earlier = reading.snapshot(reading.load(named), gallery)
        except UserError as fault:  # removed meanwhile, or damaged: the others are enough
            log.warning("%s; it is left out of the report", fault)
            continue
        snapshots.keep(run, earlier, gallery)
        taken[earlier.epoch] = earlier
    some = [each for each in taken.values() if each.epoch <= now.epoch]
    shown = gallery.with_probes(_fitting_probes(model, room))
    return {
        "probe": probe_of(shown),
        "studio": studio_of(model, shown, config, reading.autocast, reading.check),
        "similarity": similarity_of(patches[: len(shown.probes)]),
        "pca": pca_of(some, gallery, len(shown.probes)),
        "map": map_of(embeddings, gallery),
        "neighbours": neighbours_of(some, gallery),
        "odd": odd_of(embeddings, gallery, run),
    }


def epoch_of(model: FrozenModel) -> float:
    """The epochs that a network of a run was trained for."""
    return float(model.origin.get("epoch", model.origin.get("step", 0)))


def _earlier(run: Path, config: RunConfig, taken: Mapping[float, Snapshot]) -> list[str]:
    """The networks of earlier epochs that are still there and have no snapshot yet."""
    named = [] if 0.0 in taken or isinstance(config, TunedConfig) else [f"{run}@untrained"]
    if len(taken) > 2:  # taken on the way
        return named
    folders = sorted(
        (p for p in (run / "checkpoints").glob("step-*") if p.name[5:].isdecimal()),
        key=checkpoint.step_of,
    )
    return named + [str(folder) for folder in folders[:-1]][-snapshots.MOST_EPOCHS :]


def _fitting_probes(model: FrozenModel, room: float) -> int:
    """How many probes fit, beside images that all runs share."""
    backbone = model.backbone
    rows, cols = backbone.grid(model.image_size, model.image_size)
    of_a_patch = 4 * (backbone.depth + max(backbone.heads)) + FEATURES + 3 * snapshots.MOST_EPOCHS
    return max(1, int(room / (4 / 3 * rows * cols * of_a_patch)))
