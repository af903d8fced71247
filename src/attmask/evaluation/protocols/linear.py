"""The linear probe: a classifier trained on frozen features of new random crops in each epoch.

One forward pass of each batch trains one classifier for every learning rate.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from pydantic import PositiveFloat
from torch import Tensor

from attmask.data.decode import check_readable
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop, RandomResizedCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.budget import Budget, scaled_rates, training_budget
from attmask.evaluation.probes.report import PaperRate, Trial
from attmask.evaluation.probes.training import (
    LabelledBatch,
    Probes,
    left_out,
    order,
    share_of,
    train,
)
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.randomness import uniform
from attmask.settings import Config, setting

log = logging.getLogger(__name__)

# Increase it whenever the same settings give other results, so that saved trainings are not used.
# Also increase the versions of the tasks in catalog.py.
_VERSION = 2

PAPER = PaperRate(0.003, batch_size=1024)
PAPER_EPOCHS = 100


class Linear(Config):
    """The paper's linear probe: new random resized crops and flips in each epoch."""

    epochs: int | None = setting(
        None,
        "number of epochs (null: 100, more if a batch size of 32 makes fewer than 1,000 steps)",
        paper="100",
        ge=1,
    )
    batch_size: int | None = setting(
        None,
        "images per step over all processes (null: 1024, less if it makes fewer than 1,000 steps)",
        paper="1024",
        ge=1,
    )
    rates: tuple[PositiveFloat, ...] = setting(
        (0.0005, PAPER.for_256, 0.003, 0.005, 0.01, 0.02, 0.05, 0.1),
        "learning rates at a batch size of 256; one classifier is trained for each",
        paper="0.00075 (0.003 at batch 1024); the reference 0.005 at 2048, scaled",
        min_length=1,
    )
    readout: Embedding = setting(
        Embedding(blocks=4), "features to use", paper="[CLS] of the last 4 blocks"
    )
    scale_min: float = setting(
        0.08, "minimum share of the image's area in a training crop", paper="0.08", gt=0, le=1
    )
    image_size: int | None = setting(
        None, "side of the crops in pixels (null: the network's own)", paper="224", ge=1
    )

    def check(self, model: FrozenModel, data: Split) -> None:
        """Check the images and the crop size."""
        check_images(data.train, data.test)
        check_crop(model, self.image_size)
        check_readable(data.train, model.data)

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """Train on the training images and test after every epoch."""
        readout, notes = self.readout.fitting(model.backbone)
        size = self.image_size or model.image_size
        crop = CenterCrop(size)
        test = extractor.features(model, data.test, crop, readout, "test images")
        budget = self.budget(len(data.train))
        crops = TrainingCrops(
            model, data.train, extractor, budget.batch_size, self.scale_min, readout, size
        )
        probes = Probes(
            scaled_rates(self.rates, budget.batch_size),
            classes=data.classes,
            width=readout.width(model.backbone),
            epochs=budget.epochs,
            seed=extractor.seed,
            device=extractor.device,
        )
        trial = Trial(
            name="linear",
            version=_VERSION,
            settings=self,
            rates=self.rates,
            budget=budget,
            model=model,
            data=data,
            extractor=extractor,
            crop=crop,
            readout=readout,
            features=(test,),
        )
        curve = train(probes, crops.epoch, len(data.train), test, trial.folder)
        unread = left_out(probes, len(data.train))
        if unread:
            extractor.known.unreadable[data.train] = unread
            told = f"{unread} of {len(data.train)} training images could not be read"
            notes = (*notes, f"{told}; they were left out")
        return trial.report(probes, curve, notes, PAPER)

    def budget(self, images: int) -> Budget:
        """The batch size and the number of epochs for this number of images."""
        return training_budget(
            images, batch_size=self.batch_size, epochs=self.epochs, usual_epochs=PAPER_EPOCHS
        )


@dataclass(frozen=True, eq=False)
class TrainingCrops:
    """Features of labelled images, with new random crops in each epoch."""

    model: FrozenModel
    source: Source
    extractor: FeatureExtractor
    batch_size: int
    scale_min: float
    readout: Embedding
    size: int

    def __post_init__(self) -> None:
        if len(self.source) == 0:
            raise UserError(f"{self.source.root} has no training images; give a folder with some")
        check_readable(self.source, self.model.data)

    def epoch(self, epoch: int) -> Iterator[LabelledBatch]:
        """This process's share of every batch; unreadable images are left out."""
        size, seed = self.batch_size, self.extractor.seed
        batches = order(len(self.source), batch_size=size, seed=seed, epoch=epoch)
        shares = [share_of(batch) for batch in batches]
        assert self.source.labels is not None
        labels = torch.from_numpy(np.array(self.source.labels, dtype=np.int64))
        rows = self._rows(epoch, torch.cat(shares).tolist())
        vectors = torch.zeros(
            0, self.readout.width(self.model.backbone), device=self.extractor.device
        )
        readable = torch.zeros(0, dtype=torch.bool)
        unread: list[int] = []
        for share in shares:
            # A forward pass has fewer images than a training step.
            while len(readable) < len(share):
                more, good = next(rows)
                vectors, readable = torch.cat([vectors, more]), torch.cat([readable, good])
            here, good = vectors[: len(share)], readable[: len(share)]
            vectors, readable = vectors[len(share) :], readable[len(share) :]
            unread += share[~good].tolist()
            yield here[good.to(here.device)], labels[share][good]
        if unread and epoch == 0:
            log.warning(
                "%d of %d images of %s cannot be read, the first is %s; they are left out",
                *(len(unread), sum(map(len, shares)), self.source.root),
                self.source.place(min(unread)),
            )

    def _rows(
        self, epoch: int, indices: list[int]
    ) -> Iterator[tuple[Float[Tensor, "b W"], Bool[Tensor, "b"]]]:
        # Not the seed itself, which draws the crops of pre-training.
        seed = int(uniform("crops of a linear probe", self.extractor.seed) * 2**53)
        crop = RandomResizedCrop(self.size, self.scale_min, seed, epoch, resampling="bilinear")
        for batch in self.extractor.stream(
            self.model, self.source, crop, self.readout, indices=indices
        ):
            yield batch.values, batch.readable
