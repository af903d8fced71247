"""The results of a linear probe: metrics of the best learning rate, and its classifier."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attmask import distributed
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.features.store import digest
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.budget import Budget
from attmask.evaluation.probes.training import AccuracyCurve, Chosen, Probes, choose, summary
from attmask.evaluation.task import Measures
from attmask.metric import Metric
from attmask.settings import Config


def keep_classifier(classifier: LinearClassifier, extractor: FeatureExtractor, name: str) -> Path:
    """Save the classifier in the cache for other tasks."""
    file = extractor.cache / "classifiers" / name
    if distributed.is_main():
        classifier.save(file)
    distributed.wait_for_all()
    return file


@dataclass(frozen=True)
class PaperRate:
    """The learning rate that the paper states, at its batch size."""

    at_batch: float
    batch_size: int

    @property
    def for_256(self) -> float:
        """The same at a batch size of 256, as in the setting `rates`."""
        return self.at_batch * 256 / self.batch_size

    def __str__(self) -> str:
        return f"{self.at_batch:g} at a batch size of {self.batch_size}"


@dataclass(frozen=True, eq=False)
class Trial:
    """One training of a linear protocol: everything that its result depends on."""

    name: str
    version: int
    settings: Config
    rates: tuple[float, ...]
    budget: Budget
    model: FrozenModel
    data: Split
    extractor: FeatureExtractor
    crop: CenterCrop
    readout: Embedding
    features: tuple[Features, ...]
    """Those that are read once; which of their images could be read matters too."""

    @cached_property
    def folder(self) -> Path:
        """The folder for the state of exactly this training."""
        train, test = (
            self.extractor.key(self.model, source, self.crop, self.readout)
            for source in (self.data.train, self.data.test)
        )
        key = {
            self.name: self.version,
            "settings": self.settings.model_dump(mode="json"),
            "training": self.budget.describe(),
            "seed": self.extractor.seed,
            "classes": list(self.data.train.classes),
            "train": train,
            "test": test,
            "rows": [_rows_digest(features) for features in self.features],
        }
        # Of the main process: dates of copies of the images may differ between machines.
        return self.extractor.cache / "probes" / digest(distributed.from_main(key))

    def report(
        self, probes: Probes, curve: AccuracyCurve, notes: tuple[str, ...], paper: PaperRate
    ) -> Measures:
        """Save the classifier of the best learning rate and epoch, and report the results."""
        chosen = choose(curve, self.rates)
        classifier = LinearClassifier(
            weight=probes.each[chosen.index].best_weight,
            bias=probes.each[chosen.index].best_bias,
            classes=tuple(self.data.train.classes),
            readout=self.readout,
            image_size=self.crop.size,
            network=self.model.digest,
            rate=self.rates[chosen.index],
            epoch=chosen.best_epoch,
        )
        name = f"{self.name}-{self.model.digest[:16]}-{self.folder.name[:16]}.safetensors"
        return report(
            curve,
            chosen,
            self.rates,
            self.data,
            notes,
            classifier,
            keep_classifier(classifier, self.extractor, name),
            prefix=self.name.replace("-", "_"),
            budget=self.budget,
            paper=paper,
        )


def _rows_digest(features: Features) -> str | None:
    if features.rows is None:
        return None
    return hashlib.sha256(features.rows.numpy().tobytes()).hexdigest()


def report(
    curve: AccuracyCurve,
    chosen: Chosen,
    rates: tuple[float, ...],
    data: Split,
    notes: tuple[str, ...],
    classifier: LinearClassifier,
    file: Path,
    *,
    prefix: str,
    budget: Budget,
    paper: PaperRate,
) -> Measures:
    """Metrics of the best learning rate and of the paper's; the details have all learning rates.

    `prefix` is the prefix of the metric keys.
    """

    def accuracy(name: str, value: float, title: str) -> Metric:
        return Metric(f"{prefix}.{name}", value, "%", True, title=title)

    metrics = [
        accuracy("top1", chosen.best.top1, "top-1 accuracy, best epoch"),
        accuracy("top1_last", chosen.last.top1, "top-1 accuracy, last epoch"),
        accuracy("top5", chosen.best.top5, "top-5 accuracy, best epoch"),
        accuracy("top5_last", chosen.last.top5, "top-5 accuracy, last epoch"),
        Metric(f"{prefix}.rate", rates[chosen.index], "", None, title="best learning rate"),
    ]
    stated = summary(curve, rates.index(paper.for_256)) if paper.for_256 in rates else None
    if stated is not None:
        told = "top-1 accuracy, paper's rate"
        metrics.append(accuracy("top1_paper", stated.best.top1, f"{told}, best epoch"))
        metrics.append(accuracy("top1_paper_last", stated.last.top1, f"{told}, last epoch"))
    details = {
        "training": budget.describe(),
        "best epoch": chosen.best_epoch,
        "rates": [_of_one_rate(curve, index, rate) for index, rate in enumerate(rates)],
        "classifier": str(file),
        "classifier sha256": classifier.digest,
    }
    said = (f"trained for {budget}", *_notes(curve, rates, data, chosen, paper))
    return Measures(tuple(metrics), (*notes, *said), details)


def _of_one_rate(curve: AccuracyCurve, index: int, rate: float) -> Mapping[str, Any]:
    found = summary(curve, index)
    if found is None:
        return {"rate": rate, "top-1, best epoch": None}
    return {
        "rate": rate,
        "best epoch": found.best_epoch,
        "top-1, best epoch": found.best.top1,
        "top-1, last epoch": found.last.top1,
        "top-5, last epoch": found.last.top5,
        "top-1": [a.top1 for a in (epoch[index] for epoch in curve) if a is not None],
    }


def _notes(
    curve: AccuracyCurve, rates: tuple[float, ...], data: Split, chosen: Chosen, paper: PaperRate
) -> Iterator[str]:
    best = (
        "the best epoch" if len(rates) == 1 else f"the best epoch of the best of {len(rates)} rates"
    )
    yield (
        f"{best} was selected on the test images, which is optimistic; the paper's authors also "
        f"select the epoch there, but state one learning rate, {paper}"
    )
    yield f"the saved classifier is that of the best epoch, {chosen.best_epoch}"
    missing = data.missing_in_train()
    if missing:
        yield f"tested classes without a training image: {len(missing)}, the first is {missing[0]}"
    if data.classes == 1:
        yield "there is only one class, so every answer is right"
    lost = [
        f"{rate:g}" for rate, accuracy in zip(rates, curve[-1], strict=True) if accuracy is None
    ]
    if lost:
        yield f"weights overflowed at learning rate {', '.join(lost)}, which was left out"
