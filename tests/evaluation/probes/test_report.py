from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.readout import CLS
from attmask.evaluation.metrics.accuracy import Accuracy
from attmask.evaluation.probes.budget import Budget
from attmask.evaluation.probes.report import PaperRate, keep_classifier, report
from attmask.evaluation.probes.training import AccuracyCurve, choose
from attmask.evaluation.task import Measures
from tests.evaluation.models import extractor_in

JUDGE = LinearClassifier(torch.eye(2), torch.zeros(2), ("a", "b"), CLS, 32, "x", 0.2)


@pytest.fixture(scope="module")
def split(scenes: Path) -> Split:
    return Labelled().open(scenes)


def told(curve: AccuracyCurve, rates: tuple[float, ...], split: Split) -> Measures:
    return report(
        curve,
        choose(curve, rates),
        rates,
        split,
        ("first",),
        JUDGE,
        Path("c"),
        prefix="probe",
        budget=Budget(1480, 64, 50),
        paper=PaperRate(0.4, batch_size=1024),
    )


def test_the_table_has_the_best_rate_and_the_details_have_all(split: Split) -> None:
    curve: AccuracyCurve = [
        [Accuracy(10.0, 20.0), Accuracy(50.0, 60.0)],
        [Accuracy(30.0, 40.0), Accuracy(40.0, 70.0)],
    ]
    found = told(curve, (0.1, 0.2), split)
    assert found.values == {
        "probe.top1": 50,
        "probe.top1_last": 40,
        "probe.top5": 60,
        "probe.top5_last": 70,
        "probe.rate": 0.2,
        "probe.top1_paper": 30,
        "probe.top1_paper_last": 30,
    }
    assert found.details["training"] == {
        "images": 1480,
        "batch_size": 64,
        "epochs": 50,
        "steps": 1200,
    }
    assert found.details["best epoch"] == 1
    assert [rate["top-1"] for rate in found.details["rates"]] == [[10, 30], [50, 40]]
    assert found.details["classifier"] == "c"
    assert found.details["classifier sha256"] == JUDGE.digest
    assert found.notes[0] == "first"
    assert found.notes[1] == (
        "trained for 50 epochs of 1,480 images with a batch size of 64: 1,200 steps"
    )
    assert found.notes[2].startswith(
        "the best epoch of the best of 2 rates was selected on the test"
    )
    assert found.notes[2].endswith("but state one learning rate, 0.4 at a batch size of 1024")
    assert found.notes[3] == "the saved classifier is that of the best epoch, 1"


def test_without_the_papers_rate_nothing_is_said_of_it(split: Split) -> None:
    found = told([[Accuracy(5.0, 6.0)]], (0.2,), split)
    assert not [name for name in found.values if "paper" in name]
    lost = told([[None, Accuracy(50.0, 60.0)]], (0.1, 0.2), split)
    assert not [name for name in lost.values if "paper" in name]


def test_a_rate_that_overflowed_is_said_and_has_no_numbers(split: Split) -> None:
    found = told([[None, Accuracy(50.0, 60.0)]], (1e9, 0.2), split)
    assert "weights overflowed at learning rate 1e+09, which was left out" in found.notes
    assert found.details["rates"][0] == {"rate": 1e9, "top-1, best epoch": None}
    assert "overflowed" not in str(told([[Accuracy(5.0, 6.0)]], (0.2,), split).notes)


def test_a_class_that_was_not_learned_is_said(split: Split) -> None:
    assert split.train.labels is not None
    fewer = replace(split, train=split.train.subset((split.train.labels > 0).nonzero()[0]))
    found = told([[Accuracy(5.0, 6.0)]], (0.2,), fewer)
    name = split.train.classes[0]
    assert f"tested classes without a training image: 1, the first is {name}" in found.notes


def test_a_classifier_is_kept_beside_the_features(tmp_path: Path) -> None:
    extractor = extractor_in(tmp_path)
    file = keep_classifier(JUDGE, extractor, "linear-x.safetensors")
    assert file == extractor.cache / "classifiers" / "linear-x.safetensors"
    assert LinearClassifier.load(file, network="x").rate == 0.2
