"""Segmenters and detectors as a user runs them: predict, segment-upernet and detect-cascade."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO
from safetensors.torch import save_file

import attmask
from attmask.cli import main
from attmask.data.coco import open_boxed
from attmask.data.masks import MasksConfig, open_masked
from attmask.errors import UserError
from attmask.evaluation.loading import load_model
from attmask.metric import values_by_key
from tests.dense_runs import (
    CATEGORY,
    NAMES,
    VALUES,
    detect_run,
    segment_run,
    write_boxed,
    write_masked,
)
from tests.evaluation.models import tiny_backbone

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # pycocotools


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    state = {k: t.contiguous() for k, t in tiny_backbone().vit.state_dict().items()}
    save_file(state, file, metadata={"heads": "2"})
    return file


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masked(tmp_path_factory.mktemp("masked"))


@pytest.fixture(scope="module")
def boxed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_boxed(tmp_path_factory.mktemp("boxed"))


@pytest.fixture(scope="module")
def segmenter(weights: Path, masked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return segment_run(weights, masked, tmp_path_factory.mktemp("runs") / "segments")


@pytest.fixture(scope="module")
def detector(weights: Path, boxed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return detect_run(weights, boxed, tmp_path_factory.mktemp("runs") / "objects")


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    capsys.readouterr()
    status = main(["predict", *map(str, words), "--workers", "0"])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def files_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def test_masks_store_the_values_of_the_classes_in_the_size_of_their_image(
    segmenter: Path,
    masked: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    images, out = tmp_path / "images", tmp_path / "out"
    shutil.copytree(masked / "images" / "val", images / "deep")
    shutil.copy(images / "deep" / "0.png", images / "deep" / "0.bmp")
    (images / "broken.png").write_bytes(b"no picture")
    status, shown, _ = said(capsys, segmenter, images, "--out", out)
    assert (status, shown) == (0, f"attmask: wrote the masks of 3 images to {out}\n")
    assert "1 of 4 images" in caplog.text
    assert "broken.png" in caplog.text
    names = sorted(["deep/0", "deep/0.png", "deep/1"])  # one of the two called 0 keeps its ending
    expected = [f"masks/{name}.png" for name in names] + [f"overlays/{n}.jpg" for n in names]
    assert files_in(out) == sorted(["classes.csv", *expected])
    with Image.open(out / "masks" / "deep" / "1.png") as mask:
        assert (mask.mode, mask.size) == ("P", (80, 64))
        assert set(np.unique(np.asarray(mask))) <= set(VALUES)
    with (out / "classes.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [(int(row["value"]), row["class"]) for row in rows] == list(
        zip(VALUES, NAMES, strict=True)
    )


def test_predicted_masks_are_read_as_the_classes_that_were_predicted(
    segmenter: Path, masked: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(masked / "images" / "val", data / "images")
    written = attmask.segment(segmenter, data / "images", out=data, overlays=False, workers=0)
    assert (written.images, written.unreadable) == (2, 0)
    config = MasksConfig(first=0, classes=8)
    read = open_masked(data, config)["train"].read(0, (80, 64))
    stored = np.asarray(Image.open(data / "masks" / "0.png"))
    assert (read == stored).all()
    assert not (data / "overlays").exists()


def test_detections_are_a_data_set_of_coco_that_other_readers_open(
    detector: Path, boxed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    attmask.detect(detector, boxed / "val", out=out, threshold=0.0, workers=0)
    assert files_in(out) == ["detections.json", "overlays/0.jpg", "overlays/1.jpg"]
    content = json.loads((out / "detections.json").read_text())
    assert content["categories"] == [CATEGORY]
    assert [image["file_name"] for image in content["images"]] == ["0.png", "1.png"]
    found = content["annotations"]
    assert 0 < len(found) <= 10
    assert [each["id"] for each in found] == list(range(1, len(found) + 1))
    opened = COCO(str(out / "detections.json"))
    for each in found:
        assert 0 <= each["score"] <= 1
        assert opened.annToMask(each).sum() == each["area"]
    shutil.copytree(boxed / "val", out / "val")
    (out / "annotations").mkdir()
    shutil.copy(out / "detections.json", out / "annotations" / "instances_train.json")
    (out / "val").rename(out / "train")
    again = open_boxed(out)["train"]
    assert sum(len(again.annotated(index, (80, 64))) for index in range(2)) == len(found)


def test_the_threshold_decides_what_is_written(
    detector: Path, boxed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = boxed / "val" / "0.png"
    attmask.detect(detector, picture, out=tmp_path / "all", overlays=False, workers=0)
    scores = [
        each["score"]
        for each in json.loads((tmp_path / "all" / "detections.json").read_text())["annotations"]
    ]
    assert scores
    least = (max(scores) + min(scores)) / 2
    out = tmp_path / "some"
    words = ("--threshold", f"{least}", "--no-overlays", "--out", out)
    assert said(capsys, detector, picture, *words)[0] == 0
    kept = json.loads((out / "detections.json").read_text())["annotations"]
    assert len(kept) == sum(score >= least for score in scores)
    assert files_in(out) == ["detections.json"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "add --out DIR"),
        (("--top", "2", "--out", "x"), "--top was given"),
        (("--all", "--out", "x"), "--all was given"),
        (("--classifier", "file", "--out", "x"), "--classifier was given"),
        (("--batch-size", "64", "--out", "x"), "--batch-size was given"),
    ],
)
def test_options_of_classification_are_one_line_errors(
    detector: Path,
    boxed: Path,
    words: tuple[str, ...],
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, _, errors = said(capsys, detector, boxed / "val", *words)
    assert status != 0
    assert told in errors
    assert len(errors.strip().splitlines()) == 1


@pytest.mark.slow
def test_two_processes_write_what_one_does(
    detector: Path, boxed: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for processes in ("1", "2"):
        words = ["predict", detector, boxed / "train", "--out", tmp_path / processes]
        words += ["--processes", processes, "--workers", "0", "--device", "cpu"]
        assert main([str(word) for word in words]) == 0
    capfd.readouterr()
    one, two = (
        json.loads((tmp_path / each / "detections.json").read_text()) for each in ("1", "2")
    )
    assert one["images"] == two["images"]
    assert len(one["annotations"]) == len(two["annotations"])
    assert files_in(tmp_path / "1") == files_in(tmp_path / "2")


def test_the_task_measures_the_segmenter_on_the_held_out_images(
    segmenter: Path, masked: Path, tmp_path: Path
) -> None:
    words = ["mode=whole", "flip=true"]
    (card,) = attmask.evaluate(
        segmenter, "segment-upernet", data=masked, overrides=words, workers=0, cache=tmp_path
    )
    assert list(values_by_key(card.metrics)) == ["segment.miou", "segment.aacc", "segment.macc"]
    assert dict(card.images) == {"val": 2}
    assert card.details["inference"]["flip"]
    segmented = load_model(segmenter).segmenter
    assert segmented is not None
    assert card.hashes["segmenter"] == segmented.digest
    assert [Path(file).name for file in card.files] == ["per_class.csv", "predictions.png"]
    assert [row["name"] for row in card.details["classes"]] == list(NAMES)


def test_the_task_measures_the_detector_on_the_held_out_images(
    detector: Path, boxed: Path, tmp_path: Path
) -> None:
    (card,) = attmask.evaluate(detector, "detect-cascade", data=boxed, workers=0, cache=tmp_path)
    keys = list(values_by_key(card.metrics))
    assert keys[0] == "detect.box_ap"
    assert "detect.mask_ap50" in keys
    assert dict(card.images) == {"val": 2}
    detected = load_model(detector).detector
    assert detected is not None
    assert card.hashes["detector"] == detected.digest
    assert [Path(file).name for file in card.files] == ["per_class.csv", "predictions.png"]


def test_a_network_without_the_head_is_told_how_to_train_one(
    weights: Path, masked: Path, boxed: Path, tmp_path: Path
) -> None:
    for task, data, recipe in (
        ("segment-upernet", masked, "segment-own"),
        ("detect-cascade", boxed, "detect-own"),
    ):
        with pytest.raises(UserError, match=f"--recipe {recipe}"):
            attmask.evaluate(weights, task, data=data, cache=tmp_path)


def test_classes_that_the_segmenter_does_not_know_are_refused(
    segmenter: Path, masked: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(masked, data)
    (data / "classes.txt").unlink()
    for file in (data / "masks").rglob("*.png"):
        mask = np.asarray(Image.open(file)).copy()
        mask[:8] = 3
        Image.fromarray(mask).save(file)
    with pytest.raises(UserError, match="does not know the class 3"):
        attmask.evaluate(segmenter, "segment-upernet", data=data, cache=tmp_path)
