"""The linear probe on cached features of the centre crop and of its horizontal flip.

The paper's protocol for Places205. Each epoch draws one of the two for every image.
"""

from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.cached import (
    PAPER,
    CachedProbe,
    plain_and_flipped,
    train_on_features,
)
from attmask.evaluation.probes.report import Trial
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.task import Measures
from attmask.settings import setting

# Increase it whenever the same settings give other results, so that saved trainings are not used.
# Also increase the versions of the tasks in catalog.py.
_VERSION = 2


class LinearCached(CachedProbe):
    """The paper's probe for Places205: cached features, flips only."""

    readout: Embedding = setting(
        Embedding(blocks=4),
        "features to use",
        paper="not stated for Places205; linear: [CLS] of the last 4 blocks",
    )
    image_size: int | None = setting(
        None, "side of the crops in pixels (null: the network's own)", paper="224", ge=1
    )

    def check(self, model: FrozenModel, data: Split) -> None:
        """Check the images and the crop size."""
        check_images(data.train, data.test)
        check_crop(model, self.image_size)

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        """Train on the training images and test after every epoch."""
        readout, notes = self.readout.fitting(model.backbone)
        size = self.image_size or model.image_size
        crop = CenterCrop(size)
        plain, flipped = plain_and_flipped(
            model, data.train, extractor, crop, readout, flips=self.flips
        )
        test = extractor.features(model, data.test, crop, readout, "test images")
        budget = self.budget(len(plain.vectors))
        trial = Trial(
            name="linear-cached",
            version=_VERSION,
            settings=self,
            rates=self.rates,
            budget=budget,
            model=model,
            data=data,
            extractor=extractor,
            crop=crop,
            readout=readout,
            features=(plain, test),
        )
        probes, curve = train_on_features(
            plain,
            flipped,
            data.classes,
            settings=self,
            seed=extractor.seed,
            device=extractor.device,
            test=test,
            keep=trial.folder,
        )
        return trial.report(probes, curve, notes, PAPER)
