import csv
import json
from pathlib import Path

import pytest
import torch
from torch.nn.functional import one_hot

from attmask.errors import UserError
from attmask.evaluation.metrics.classification import Answers, multi_label, single_label
from attmask.evaluation.reporting.classification import (
    as_details,
    confusion_of,
    write_classification,
)

CLASSES = ("ant, red", "bee", "cow")
LABELS = torch.tensor([0, 1, 0, 0])
LOGITS = one_hot(torch.tensor([0, 1, 1, 2]), 3).float()


def table(file: Path) -> list[list[str]]:
    with file.open(newline="") as opened:
        return list(csv.reader(opened))


def test_the_files_hold_what_was_measured(tmp_path: Path) -> None:
    metrics = write_classification(tmp_path / "new", LABELS, LOGITS, CLASSES, prefix="finetune")
    assert metrics == single_label(Answers.of(LABELS, LOGITS), CLASSES, "finetune").metrics
    assert metrics[0].key == "finetune.top1"
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == [
        "confusion.csv",
        "confusion.png",
        "per_class.csv",
    ]
    assert table(tmp_path / "new" / "confusion.csv") == [
        ["true class", *CLASSES],
        ["ant, red", "1", "1", "1"],
        ["bee", "0", "1", "0"],
        ["cow", "0", "0", "0"],
    ]
    assert table(tmp_path / "new" / "per_class.csv") == [
        ["class", "images", "recall", "precision", "f1", "confused_with", "confused_images"],
        ["ant, red", "3", "33.33", "100.00", "50.00", "bee", "1"],
        ["bee", "1", "100.00", "50.00", "66.67", "", ""],
        ["cow", "0", "", "0.00", "0.00", "", ""],
    ]


def test_several_classes_per_image_have_average_precisions_and_no_matrix(tmp_path: Path) -> None:
    targets = torch.tensor([[1, 0, 0], [1, 1, 0]]).bool()
    metrics = write_classification(tmp_path, targets, LOGITS[:2], CLASSES, threshold=0.6)
    assert [metric.key for metric in metrics] == [
        "classify.map",
        "classify.f1",
        "classify.f1_micro",
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["per_class.csv"]
    assert table(tmp_path / "per_class.csv")[:2] == [
        ["class", "images", "recall", "precision", "f1", "average_precision"],
        ["ant, red", "2", "50.00", "100.00", "66.67", "100.00"],
    ]


def test_a_card_gives_the_matrix_back() -> None:
    found = single_label(Answers.of(LABELS, LOGITS), CLASSES)
    details = json.loads(json.dumps(as_details(found)))
    again = confusion_of("mine", details)
    assert found.confusion is not None
    assert again.images.tolist() == found.confusion.tolist()
    assert (again.title, tuple(again.classes)) == ("mine", CLASSES)
    targets = torch.tensor([[1, 0, 0]]).bool()
    several = as_details(multi_label(targets, LOGITS[:1], CLASSES))
    with pytest.raises(UserError, match="mine has no confusion matrix, because an image may"):
        confusion_of("mine", several)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write .*per_class\.csv"):
        write_classification(tmp_path / "taken", LABELS, LOGITS, CLASSES)
