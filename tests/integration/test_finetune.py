"""attmask finetune as a user runs it: results, resume, selection, wrong input."""

import csv
import json
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import attmask
from attmask import checkpoint
from attmask.cli import main
from attmask.data.synthetic import write_folder
from attmask.evaluation.loading import load_model
from attmask.metric import values_by_key
from attmask.monitor import read_metrics
from attmask.tuning.results import Results
from tests.processes import wait_for
from tests.published import write_cifar10, write_cifar100, write_flowers
from tests.runs import SHORT, Forked, last_checkpoint, same_tensors

FEW = (
    *SHORT,
    "train.precision=fp32",
    "schedule.epochs=4",
    "schedule.freeze_backbone_epochs=1",
)
EVERYTHING = (
    *FEW,
    "augment.mixup=0.8",
    "augment.cutmix=1",
    "augment.erasing=0.5",
    "augment.repeats=2",
    "network.drop_path=0.3",
    "network.token=cls+gap",
    "schedule.ema=0.9",
    "labels.class_weights=balanced",
    "train.accumulate=2",
    "optim.clip=1",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated images: 280 in train, 20 in val; with repeated augmentation 256 are drawn."""
    folder = tmp_path_factory.mktemp("images")
    write_folder(folder, train=280, val=20, size=32, seed=0)
    return folder


@pytest.fixture(scope="module")
def start(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("start") / "run"
    few = (*SHORT, "schedule.epochs=1", "monitor.knn_every_epochs=0", "data.percent=20")
    assert main(["pretrain", str(images), "--recipe", "tiny", "--out", str(run), *few]) == 0
    return run


@pytest.fixture(scope="module")
def whole(images: Path, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with everything on."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main(command(start, images, run, *EVERYTHING)) == 0
    return run


def command(start: Path | str, images: Path, run: Path, *settings: str) -> list[str]:
    return ["finetune", str(start), str(images), "--out", str(run), *settings]


def complaint(capsys: pytest.CaptureFixture[str], words: list[str]) -> str:
    """The one line of a command that fails."""
    capsys.readouterr()
    assert main(words) == 1
    said = capsys.readouterr().err.strip().splitlines()
    assert said[-1].startswith("attmask: "), said
    assert "Traceback" not in "\n".join(said)
    return said[-1]


def test_a_run_ends_with_its_results(whole: Path) -> None:
    found = Results.read(whole)
    assert found is not None
    assert (found.selected_on, found.measured_on, found.last_epoch) == ("val", "val", 4)
    values = [r["classify.top1"] for r in read_metrics(whole) if "classify.top1" in r]
    assert len(values) == 5
    assert found.best["classify.top1"] == max(values)
    assert found.best_epoch == values.index(max(values))
    assert found.last["classify.top1"] == values[-1]
    assert found.measured == pytest.approx(found.best)
    rows = list(csv.DictReader((whole / "results" / "per_class.csv").open()))
    assert len(rows) == 10
    assert sum(int(row["images"]) for row in rows) == 20
    assert Image.open(whole / "results" / "confusion.png").width > 100


def test_the_best_network_is_kept_and_opened_as_the_run(whole: Path, images: Path) -> None:
    found = Results.read(whole)
    assert found is not None
    kept = checkpoint.newest(whole / "best")
    assert kept is not None
    steps = {record["epoch"]: record["step"] + 1 for record in read_metrics(whole)}
    best, last = load_model(whole), load_model(f"{whole}@last")
    assert best.origin["weights"], last.origin["weights"] == ("best", "last")
    assert last.origin["step"] == max(steps.values())
    assert checkpoint.step_of(kept) == best.origin["step"]
    (card,) = attmask.evaluate(whole, "classify", data=images, workers=0)
    assert values_by_key(card.metrics)["classify.top1"] == pytest.approx(
        found.best["classify.top1"]
    )
    (last_card,) = attmask.evaluate(f"{whole}@last", "classify", data=images, workers=0)
    assert values_by_key(last_card.metrics)["classify.top1"] == pytest.approx(
        found.last["classify.top1"]
    )


def test_predict_reads_the_run(whole: Path, images: Path, tmp_path: Path) -> None:
    found = Results.read(whole)
    out = tmp_path / "predictions.csv"
    assert main(["predict", str(whole), str(images / "val"), "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    right = [row["class"] == row["label"] for row in rows]
    assert found is not None
    assert 100 * np.mean(right) == pytest.approx(found.measured["classify.top1"])


def test_any_task_reads_the_backbone_of_the_run(whole: Path, images: Path) -> None:
    (card,) = attmask.evaluate(whole, "knn", data=images, workers=0)
    assert card.metrics
    backbone = attmask.load_backbone(whole)
    assert backbone(torch.zeros(1, 3, 32, 32)).cls.shape[0] == 1


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits_with_everything_on(
    images: Path, start: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    # With a worker, because beartype draws from Python's generator in the thread that saves.
    settings = ("checkpoint.every_minutes=0", "train.workers=1")
    words = command(start, images, run, *EVERYTHING, *settings)
    for number, steps in enumerate((9, 40, 70)):
        process = Forked(tmp_path / f"said-{number}", *words)
        wait_for(lambda after=steps: saved(run) > after, "no checkpoint")  # type: ignore[misc]
        os.kill(process.pid, signal.SIGKILL)
        process.finish()
        assert saved(run) < last_checkpoint(whole).step
    assert main(words) == 0
    assert same_tensors(last_checkpoint(run), last_checkpoint(whole))
    kept = [checkpoint.load_newest(folder / "best") for folder in (run, whole)]
    assert kept[0] is not None
    assert kept[1] is not None
    assert kept[0].step == kept[1].step
    assert same_tensors(kept[0], kept[1])
    assert Results.read(run) == Results.read(whole)


def saved(run: Path) -> int:
    found = checkpoint.newest(run / "checkpoints")
    return 0 if found is None else checkpoint.step_of(found)


def test_a_run_goes_on_without_the_checkpoint_it_started_from(
    images: Path,
    start: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    moved = Path("start")  # relative, as it is typed
    moved.symlink_to(start)
    run = tmp_path / "run"
    few = (*FEW, "data.percent=20")
    assert main(command(moved, images, run, *few)) == 0
    moved.unlink()
    assert main(command(moved, images, run, *few)) == 0
    capsys.readouterr()
    assert main(["resume", str(run), "schedule.epochs=5", "--extend"]) == 0
    assert "classify.top1 on val: best" in capsys.readouterr().out
    assert last_checkpoint(run).step == 5 * (280 // 5 // 8)
    assert main(["status", str(run)]) == 0
    assert "finished" in capsys.readouterr().out


def test_training_ends_when_there_is_nothing_left_to_gain(
    images: Path, start: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "run"
    still = ("schedule.lr=1e-12", "schedule.lr_final=0", "selection.patience=2", "data.percent=20")
    words = command(start, images, run, *FEW, *still, "schedule.epochs=30")
    assert main(words) == 0
    found = Results.read(run)
    assert found is not None
    assert found.last_epoch == 3  # one of the classifier alone, then two without a gain
    assert last_checkpoint(run).step == 3 * 7
    with caplog.at_level("INFO"):
        assert main(words) == 0
    assert "finished already" in caplog.text
    assert main([*words, "--extend", "schedule.epochs=40", "selection.patience=1"]) == 0
    assert last_checkpoint(run).step == 4 * 7  # another chance of one epoch


def test_the_results_name_the_network_that_is_kept(
    images: Path, start: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command(start, images, run, *FEW, "data.percent=20")
    assert main(words) == 0
    for lost in ("results", "best"):
        shutil.rmtree(run / lost)
    shutil.rmtree(run / "checkpoints" / "step-00000028")
    assert main(words) == 0
    found, kept = Results.read(run), checkpoint.newest(run / "best")
    assert found is not None
    assert kept is not None
    assert (found.best_epoch, checkpoint.step_of(kept)) == (4, 28)
    shutil.rmtree(run / "best")
    shutil.rmtree(run / "results")
    assert main(words) == 0
    found = Results.read(run)
    assert found is not None
    assert (found.best_epoch, found.best) == (4, found.last)


def test_settings_of_a_run_that_never_saved_do_not_change_another(
    images: Path, start: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    other = command(start, images, tmp_path / "other", *FEW, "data.percent=20", "augment.size=64")
    assert main(other) == 0
    shutil.copy(tmp_path / "other" / "config.yaml", run)
    assert main(command(start, images, run, *FEW, "data.percent=20")) == 0
    assert load_model(run).image_size == 32


def test_epochs_are_those_of_training_with_repeated_augmentation_too(whole: Path) -> None:
    assert load_model(f"{whole}@last").origin["epoch"] == 4.0
    (folder,) = (whole / "best").iterdir()
    assert load_model(folder).classifier is not None


def test_several_labels_of_an_image_come_from_a_list(
    images: Path, start: Path, tmp_path: Path
) -> None:
    paths = sorted((images / "train").rglob("*.png"))[::4]
    kinds = [("round", "light")[: index % 3] for index in range(len(paths))]
    rows = [f"{path},{'|'.join(kind) or '|'}" for path, kind in zip(paths, kinds, strict=True)]
    table = tmp_path / "images.csv"
    table.write_text("path,label\n" + "\n".join(rows) + "\n")
    run = tmp_path / "run"
    several = ("labels.multi_label=true", "selection.holdout=0.3")
    assert main(command(start, table, run, *FEW, *several)) == 0
    found = Results.read(run)
    assert found is not None
    assert {"classify.map", "classify.f1"} <= found.measured.keys()
    out = tmp_path / "predictions.csv"
    assert main(["predict", str(run), str(table), "--out", str(out)]) == 0


def test_the_api_does_what_the_command_does(images: Path, start: Path, tmp_path: Path) -> None:
    few = {"train.precision": "fp32", "schedule.epochs": 4, "data.percent": 20}
    done = attmask.finetune(start, images, out=tmp_path / "api", overrides=[*SHORT, *pairs(few)])
    assert done.results is not None
    assert main(command(start, images, tmp_path / "cli", *SHORT, *pairs(few))) == 0
    assert same_tensors(last_checkpoint(tmp_path / "api"), last_checkpoint(tmp_path / "cli"))
    assert done.results == Results.read(tmp_path / "cli")


def pairs(settings: dict[str, object]) -> list[str]:
    return [f"{key}={value}" for key, value in settings.items()]


def _flowers(folder: Path) -> None:
    splits = {"trnid": range(1, 131), "valid": range(131, 261), "tstid": range(261, 281)}
    write_flowers(folder, [1 + number % 7 for number in range(280)], splits)


@pytest.mark.parametrize(
    ("recipe", "write", "classes", "tested"),
    [
        pytest.param("cifar10", partial(write_cifar10, rows=52), 10, 52, marks=pytest.mark.slow),
        ("cifar100", partial(write_cifar100, rows=260), 100, 260),
        ("flowers", _flowers, 7, 20),
    ],
)
def test_the_papers_recipes_train_on_the_official_files(
    recipe: str,
    write: Callable[[Path], object],
    classes: int,
    tested: int,
    start: Path,
    tmp_path: Path,
) -> None:
    """260 images, of which 256 are drawn: two steps of 100 an epoch; measured at 0, 50, the end."""
    write(tmp_path / "images")
    run = tmp_path / "run"
    small = (*SHORT, "augment.size=32", "train.batch_size=100", "schedule.epochs=52")
    few = () if recipe == "cifar10" else ("schedule.epochs=6", "selection.every_epochs=4")
    words = command(start, tmp_path / "images", run, "--recipe", recipe, *small, *few)
    assert main(words) == 0
    found = Results.read(run)
    assert found is not None
    epochs = [r["epoch"] for r in read_metrics(run) if "classify.top1" in r]
    assert epochs == ([0, 50, 52] if recipe == "cifar10" else [0, 4, 6])
    assert found.selected_on == found.measured_on == "test"
    assert last_checkpoint(run).step == 2 * epochs[-1]
    rows = list(csv.DictReader((run / "results" / "per_class.csv").open()))
    assert len(rows) == classes
    assert sum(int(row["images"]) for row in rows) == tested


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (["train.batch_size=1000"], "280 images are fewer than one batch of 1000; use train"),
        (["augment.size=33"], "image size 33 is not a multiple of patch size 8; use 32 or 40"),
        (["augment.auto_augment=strong"], "'strong' is not a RandAugment policy of timm"),
        (["augment.mixup=1", "train.batch_size=7"], "mixing takes an even number; use train"),
        (["schedule.freeze_backbone_epochs=4"], "leaves none of 4 epochs for the backbone"),
        (["labels.multi_label=true", "augment.mixup=1"], "has no mixed images; set augment.mixup"),
        (["data.channels=5"], "timm recolours 1 or 3 channels, not 5; set augment.auto_augment"),
        (["selection.split=test"], "there is no split test in"),
        (["selection.train=[val]"], "must have train"),
        (["schedule.epochs=0"], "schedule.epochs=0: should be greater than or equal to 1"),
        (["views.local_crops=2"], "there is no setting 'views.local_crops'"),
    ],
)
def test_wrong_settings_are_one_line(
    settings: list[str],
    wanted: str,
    images: Path,
    start: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    assert wanted in complaint(capsys, command(start, images, run, *FEW, *settings))
    assert not (run / "checkpoints").exists()


def test_images_without_labels_one_class_and_unseen_labels_are_one_line(
    images: Path, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat = tmp_path / "flat"
    flat.mkdir()
    for path in sorted((images / "train").rglob("*.png"))[:12]:
        (flat / path.name).symlink_to(path)
    said = complaint(capsys, command(start, flat, tmp_path / "a", *FEW))
    assert "have no labels; give one sub-folder for each class" in said
    one = tmp_path / "one"
    (one / "train").mkdir(parents=True)
    (one / "train" / "cat").symlink_to(flat)
    said = complaint(capsys, command(start, one, tmp_path / "b", *FEW))
    assert "have the class 'cat'; fine-tuning wants at least two classes" in said
    unseen = tmp_path / "unseen"
    (unseen / "test").mkdir(parents=True)
    (unseen / "train").symlink_to(images / "train")
    (unseen / "test" / "zebra").symlink_to(flat)
    said = complaint(capsys, command(start, unseen, tmp_path / "c", *FEW))
    assert "the test images of" in said
    assert "no training image has: zebra" in said


def test_a_folder_of_another_kind_of_run_is_refused_and_untouched(
    images: Path, start: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (start / "config.yaml").read_text()
    said = complaint(capsys, command(start, images, start, *FEW))
    assert "has the settings of a run of kind pretrain, not finetune" in said
    assert (start / "config.yaml").read_text() == before
    words = ["pretrain", str(images), "--recipe", "tiny", "--out", str(whole), *SHORT]
    said = complaint(capsys, words)
    assert "has the settings of a run of kind finetune, not pretrain" in said
    said = complaint(capsys, command(start, images, whole, *FEW))
    assert "holds a run with other settings" in said


def test_networks_that_a_fine_tuning_does_not_have_are_refused_in_one_line(
    whole: Path, start: Path, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = complaint(capsys, ["evaluate", f"{whole}@student", "knn", "--data", str(images)])
    assert "use @best or @last" in said
    said = complaint(capsys, ["evaluate", f"{start}@best", "knn", "--data", str(images)])
    assert "which has no network best; use @teacher" in said
    said = complaint(capsys, ["evaluate", str(start), "classify", "--data", str(images)])
    assert "attmask finetune" in said


def test_settings_are_complete_and_name_their_start(whole: Path, start: Path) -> None:
    settings = (whole / "config.yaml").read_text()
    assert settings.startswith("kind: finetune\n")
    assert f"start: {start}" in settings
    assert "size: 32" in settings
    state = json.loads((next((whole / "best").iterdir()) / "state.json").read_text())
    assert len(state["info"]["classes"]) == 10
