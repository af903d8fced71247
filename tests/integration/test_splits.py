"""A folder as CIFAR-10 is often kept: `train/` and `test/`, looked at, trained on and measured by
the commands as they are, and the same images under other names of the splits."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.audit.inspect import inspect_images
from attmask.audit.table import render
from attmask.cli import main
from attmask.data.sources import open_images
from tests.runs import SHORT, last_checkpoint

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
TRAIN, TEST, LEAKED = 8, 3, 5
QUICK = (*SHORT, "--recipe", "tiny", "schedule.epochs=1")


def picture(label: int, number: int) -> Image.Image:
    """Soft colours, of a shade that the class has and a pattern that no other picture has."""
    draws = np.random.default_rng([label, number])
    pattern = draws.integers(0, 160, (4, 4, 3)) + np.array([label * 9, 90 - label * 9, 40])
    return Image.fromarray(pattern.astype(np.uint8)).resize((32, 32), Image.Resampling.BICUBIC)


def write(folder: Path, first: int, count: int) -> None:
    for label, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for number in range(first, first + count):
            picture(label, number).save(folder / name / f"{number:04}.png")


def leak(root: Path, train: str, held_out: str) -> set[str]:
    """Copy some held-out pictures into train, under other names; returns which."""
    leaked = set()
    for name in CLASSES[:LEAKED]:
        source = sorted((root / held_out / name).iterdir())[0]
        shutil.copy(source, root / train / name / "9999.png")
        leaked.add(str(source))
    return leaked


@pytest.fixture(scope="module")
def cifar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("cifar") / "cifar10"
    write(root / "train", 0, TRAIN)
    write(root / "test", 100, TEST)
    return root


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[str, str]:
    status = main([str(word) for word in words])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    return shown.out, shown.err


@pytest.mark.slow
def test_a_folder_of_train_and_test_works_by_the_defaults_of_every_command(
    cifar: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, run = tmp_path / "cifar10", tmp_path / "run"
    shutil.copytree(cifar, root)
    leaked = leak(root, "train", "test")

    audit = json.loads(said(capsys, "inspect", root, "--json")[0])
    assert audit["images"]["train"] == 10 * TRAIN + LEAKED
    assert audit["images"]["test"] == 10 * TEST
    assert audit["classes"]["count"] == 10
    assert list(audit["leakage"]) == ["test in train"]
    found = audit["leakage"]["test in train"]
    assert {pair["val"] for pair in found["exact"]} == leaked
    assert all(pair["train"].startswith(str(root / "train")) for pair in found["exact"])
    assert found["near"] == []
    assert f"{LEAKED} images of test are also in train" in audit["warnings"]

    caplog.clear()
    said(capsys, "pretrain", root, "--out", run, *SHORT, "schedule.epochs=1")
    assert "test: 30 images are held out" in caplog.messages
    assert last_checkpoint(run).info["images"] == 10 * TRAIN + LEAKED

    cards = tmp_path / "cards.json"
    words = ("evaluate", run, "knn", "linear", "--data", root, "--workers", "0", "--out", cards)
    shown, _ = said(capsys, *words, "linear.epochs=1")
    assert "train 85, test 30" in shown
    for card in json.loads(cards.read_text()):
        assert card["images"] == {"train": 10 * TRAIN + LEAKED, "test": 10 * TEST}
        assert card["dataset"]["split"] == "auto"


@pytest.mark.parametrize(
    ("folders", "splits", "held_out"),
    [
        (
            ("train", "valid", "test"),
            ["train", "val", "test"],
            "val: 30 images and test: 30 images",
        ),
        (("Train", "Val"), ["train", "val"], "val: 30 images"),
        (("training", "validation"), ["train", "val"], "val: 30 images"),
    ],
)
def test_other_names_of_the_splits_are_never_classes(
    cifar: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    folders: tuple[str, ...],
    splits: list[str],
    held_out: str,
) -> None:
    root, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(cifar / "train", root / folders[0])
    for number, folder in enumerate(folders[1:]):
        write(root / folder, 100 + 10 * number, TEST)
    leaked = leak(root, folders[0], folders[-1])
    assert list(open_images(root).splits) == splits

    audit = inspect_images(root, workers=0, measure=False)
    exact = {name: found.exact for name, found in audit.leakage.items()}
    assert {pair.val for pair in exact.pop(f"{splits[-1]} in train")} == leaked
    assert not any(exact.values())

    caplog.clear()
    said(capsys, "pretrain", root, "--out", run, *QUICK)
    assert f"{held_out} are held out" in caplog.messages
    assert last_checkpoint(run).info["images"] == 10 * TRAIN + LEAKED
    words = ("evaluate", run, "knn", "--data", root, "--workers", "0", "--json")
    for wanted in ("auto", *splits[1:]):
        (card,) = json.loads(said(capsys, *words, f"split={wanted}")[0])
        tested = "val" if wanted == "auto" else wanted
        assert card["images"] == {"train": 10 * TRAIN + LEAKED, tested: 10 * TEST}


def test_a_class_that_only_the_test_images_have_stops_nothing(
    cifar: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(cifar, root)
    shutil.rmtree(root / "train" / "airplane")
    said(capsys, "pretrain", root, "--out", run, *QUICK)
    assert f"{root}: test has a class that train does not have: airplane" in caplog.messages
    words = ("evaluate", run, "knn", "linear", "fewshot", "--data", root, "--workers", "0")
    shown, _ = said(capsys, *words, "linear.epochs=1", "fewshot.shots=[1,2]", "--json")
    knn, linear, _ = cards = json.loads(shown)
    assert [card["images"]["test"] for card in cards] == [30, 30, 30]
    assert "1 of 10 tested classes have no training image: airplane" in knn["notes"]
    assert any("a training image: 1, the first is airplane" in n for n in linear["notes"])
    assert knn["metrics"][0]["value"] <= 90


def test_what_is_passed_over_is_said_by_pretrain_and_inspect(
    cifar: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root, run = tmp_path / "data", tmp_path / "run"
    shutil.copytree(cifar / "train", root)
    (root / "cat" / "0000.png").rename(root / "cat" / "0000.dng")
    (root / "dog" / "notes.txt").touch()
    picture(0, 50).save(root / "bird" / "new.jfif", "jpeg")
    line = "2 files are skipped because of the ending: .dng 1, .txt 1"
    for _ in range(2):  # scanned, and from the index
        caplog.clear()
        said(capsys, "pretrain", root, "--out", run, *QUICK)
        assert line in caplog.messages
        assert last_checkpoint(run).info["images"] == 10 * TRAIN
    shown = render(inspect_images(root, workers=0, measure=False))
    assert line in " ".join(shown.split())
