"""`attmask predict` as a user runs it, with the classifier that the task linear has written."""

import csv
from pathlib import Path

import pytest
from safetensors.torch import save_file

import attmask
from attmask.cli import main
from attmask.data.synthetic import CLASSES
from attmask.evaluation.loading import load_model
from tests.evaluation.models import tiny_backbone, with_classifier


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    state = {k: t.contiguous() for k, t in tiny_backbone().vit.state_dict().items()}
    save_file(state, file, metadata={"heads": "2"})
    return file


@pytest.fixture(scope="module")
def classifier(weights: Path) -> Path:
    made = with_classifier(load_model(weights), CLASSES).classifier
    assert made is not None
    made.save(weights.parent / "classifier.safetensors")
    return weights.parent / "classifier.safetensors"


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    try:
        status = main(["predict", *map(str, words)])
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_the_file_and_the_screen_have_a_line_for_each_image(
    weights: Path,
    classifier: Path,
    scenes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "new" / "predictions.csv"
    words = (weights, scenes, "--classifier", classifier, "--split", "val", "--top", "2", "--all")
    status, shown, _ = said(capsys, *words, "--out", out, "--workers", "0")
    assert (status, shown) == (0, f"attmask: wrote 20 predictions to {out}\n")
    assert [file.name for file in out.parent.iterdir()] == ["predictions.csv"]
    with out.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    records = list(
        attmask.predict(weights, scenes, classifier=classifier, split="val", top=2, workers=0)
    )
    assert [row["name"] for row in rows] == [record.name for record in records]
    assert [row["class_2"] for row in rows] == [record.classes[1] for record in records]
    assert {row["label"] for row in rows} == set(CLASSES)
    assert f"probability:{CLASSES[3]}" in rows[0]
    status, printed, _ = said(capsys, *words, "--workers", "0")
    assert (status, printed) == (0, out.read_text())


def test_a_single_picture_is_enough(
    weights: Path, classifier: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = next((scenes / "val").glob("*/*.png"))
    status, out, _ = said(capsys, weights, picture, "--classifier", classifier, "--workers", "0")
    header, line = out.splitlines()
    assert (status, header) == (0, "name,class,probability")
    assert line.startswith(f"{picture.name},")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "has no classifier; train one with `attmask finetune`, or give the file"),
        (("--out", "predictions.txt"), "--out predictions.txt is not the name of a .csv file"),
        (("--top", "0"), "0 is not an integer of at least 1"),
        (("--classifier", "none.safetensors"), "none.safetensors does not exist; train one"),
        (("k=3",), "unknown argument k=3"),
    ],
)
def test_what_is_wrong_is_one_line(
    weights: Path,
    scenes: Path,
    words: tuple[str, ...],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, out, err = said(capsys, weights, scenes, *words)
    assert (status, out) == (1, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_a_place_that_cannot_be_written_is_named_and_leaves_nothing(
    weights: Path,
    classifier: Path,
    scenes: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "taken").write_text("a file")
    words = (weights, scenes, "--classifier", classifier, "--workers", "0")
    status, _, err = said(capsys, *words, "--out", tmp_path / "taken" / "a.csv")
    assert status == 1
    assert "a.csv: " in err
    assert "choose another --out" in err
    assert [file.name for file in tmp_path.iterdir()] == ["taken"]
