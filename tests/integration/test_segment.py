"""attmask finetune with a recipe of segmentation: results, resume, lengths, wrong input."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import attmask
from attmask import checkpoint
from attmask.cli import main
from attmask.data.synthetic import write_folder
from attmask.monitor import read_metrics
from attmask.tuning.results import Results
from tests.dense.made_images import write_masked
from tests.integration.dense_runs import (
    FEW,
    assert_same_runs,
    command,
    complaint,
    in_two,
    kill_two,
    killed_and_resumed,
    saved,
)
from tests.runs import SHORT, last_checkpoint

SETTINGS = (
    "--recipe",
    "segment-own",
    *FEW,
    "augment.size=32",
    "head.channels=8",
    "head.auxiliary_channels=8",
    "network.drop_path=0.2",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_masked(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    write_folder(folder / "images", train=16, val=4, size=32, seed=0)
    few = (*SHORT, "schedule.epochs=1", "monitor.knn_every_epochs=0")
    words = ["pretrain", str(folder / "images"), "--recipe", "tiny", "--out", str(folder / "run")]
    assert main([*words, *few]) == 0
    return folder / "run"


@pytest.fixture(scope="module")
def whole(images: Path, start: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three epochs of two steps."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert main(command(start, images, run, *SETTINGS)) == 0
    return run


def test_a_run_ends_with_its_results(whole: Path) -> None:
    found = Results.read(whole)
    assert found is not None
    assert (found.selected_on, found.measured_on, found.last_epoch) == ("val", "val", 3)
    values = [r["segment.miou"] for r in read_metrics(whole) if "segment.miou" in r]
    assert len(values) == 4
    assert found.best["segment.miou"] == max(values[1:])
    assert found.last["segment.miou"] == values[-1]
    assert found.measured == pytest.approx(found.best)
    assert len(list(csv.DictReader((whole / "results" / "per_class.csv").open()))) == 3
    kept = checkpoint.newest(whole / "best")
    assert kept is not None
    assert checkpoint.step_of(kept) == 2 * found.best_epoch
    losses = [r for r in read_metrics(whole) if "loss.total" in r]
    assert losses[0]["loss.total"] == pytest.approx(
        losses[0]["loss.decode"] + losses[0]["loss.auxiliary"]
    )


def test_a_killed_run_goes_on_to_the_same_bits(
    images: Path, start: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command(start, images, run, *SETTINGS)
    killed_and_resumed(words, run, tmp_path / "said", 1, 3)
    assert_same_runs(run, whole)


@pytest.mark.slow
def test_micro_batches_and_a_moving_average_go_on_to_the_same_bits(
    images: Path, start: Path, tmp_path: Path
) -> None:
    more = ("train.accumulate=2", "schedule.ema=0.9", "schedule.epochs=2")
    other, run = tmp_path / "whole", tmp_path / "run"
    assert main(command(start, images, other, *SETTINGS, *more)) == 0
    killed_and_resumed(command(start, images, run, *SETTINGS, *more), run, tmp_path / "said", 1)
    assert_same_runs(run, other)


def test_a_length_in_steps_ends_inside_an_epoch_and_is_made_longer(
    images: Path,
    start: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = tmp_path / "run"
    words = command(start, images, run, *SETTINGS)
    assert main([*words, "schedule.steps=3"]) == 0
    assert last_checkpoint(run).step == 3
    epochs = [r["epoch"] for r in read_metrics(run) if "segment.miou" in r]
    assert epochs == [0, 1, 2]
    before = Results.read(run)
    with caplog.at_level("INFO"):
        assert main([*words, "schedule.steps=3"]) == 0
    assert "finished already" in caplog.text
    assert Results.read(run) == before
    assert main([*words, "schedule.steps=5", "--extend"]) == 0
    found = Results.read(run)
    assert found is not None
    assert (last_checkpoint(run).step, found.last_epoch) == (5, 3)
    assert main(["resume", str(run), "--extend", "schedule.epochs=90"]) == 1
    assert "a run of 5 steps" in capsys.readouterr().err


def test_the_last_epoch_of_a_length_in_steps_is_completed_only_if_that_is_asked_for(
    images: Path, start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    words = command(start, images, run, *SETTINGS)
    assert main([*words, "schedule.steps=3"]) == 0
    before = Results.read(run)
    assert "add --extend to train longer" in complaint(capsys, [*words, "schedule.steps=4"])
    shorter = complaint(capsys, [*words, "schedule.steps=2", "schedule.lr_warmup_steps=2"])
    assert "other settings" in shorter
    assert main([*words, "schedule.steps=4", "--extend"]) == 0
    assert last_checkpoint(run).step == 4
    found = Results.read(run)
    assert found is not None
    assert before is not None
    assert (found.last_epoch, before.last_epoch) == (2, 2)
    assert (found.last_step, before.last_step) == (4, 3)


def test_the_api_does_what_the_command_does(
    images: Path, start: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    done = attmask.finetune(
        start, images, recipe="segment-own", out=run, overrides=list(SETTINGS[2:])
    )
    assert done.results == Results.read(whole)
    assert_same_runs(run, whole)


@pytest.mark.slow
def test_two_processes_train_and_go_on_to_the_same_bits_after_a_kill(
    images: Path, start: Path, tmp_path: Path
) -> None:
    ran = []
    for name in ("whole", "part"):
        run = tmp_path / name
        words = command(start, images, run, *SETTINGS, "train.workers=1")
        if name == "part":
            often = ["checkpoint.every_minutes=0", "train.timeout_minutes=0.2"]
            words = [*words, *often]
            kill_two(words, run, tmp_path)
            assert 0 < saved(run) < 6
        in_two(words, tmp_path)
        ran.append(run)
    assert_same_runs(*ran)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (["augment.size=33"], "image size 33 is not a multiple of patch size 8; use 32 or 40"),
        (["train.batch_size=1"], "whose batch norm needs 2; use a larger batch"),
        (["train.batch_size=1000"], "10 images are fewer than one batch of 1000"),
        (["train.sharding=fsdp"], "keeps whole networks; set train.sharding=none"),
        (["--recipe", "detect-own"], "annotation"),
        (["--recipe", "segment-owm"], "segment-own"),
        (["--recipe", "tiny"], "tiny is a recipe of attmask pretrain"),
        (["selection.split=test"], "there is no split test in"),
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
    own = FEW if "--recipe" in settings else SETTINGS
    assert wanted in complaint(capsys, command(start, images, run, *own, *settings))
    assert not saved(run)


def test_images_without_masks_and_folders_of_other_runs_are_one_line(
    images: Path, start: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "images").symlink_to(images / "images")
    said = complaint(capsys, command(start, bare, tmp_path / "a", *SETTINGS))
    assert "mask" in said
    said = complaint(capsys, command(start, images, start, *SETTINGS))
    assert "has the settings of a run of kind pretrain, not segment" in said
    said = complaint(capsys, command(start, images, whole, *SHORT))
    assert "has the settings of a run of kind segment, not finetune" in said


def test_masks_that_mean_something_else_are_refused_when_a_run_goes_on(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_masked(tmp_path / "images", train=4, val=2)
    words = command(
        start, data, tmp_path / "run", *SETTINGS, "schedule.steps=1", "schedule.lr_warmup_steps=0"
    )
    assert main(words) == 0
    for file in data.glob("masks/*/*.png"):
        values = np.array(Image.open(file))
        Image.fromarray(np.where(values == 2, 9, values).astype(np.uint8)).save(file)
    said = complaint(capsys, [*words, "schedule.steps=2", "--extend"])
    assert "holds a run with the classes 0, 1, 2, but the annotations have 0, 1, 9" in said


def test_test_images_without_a_labelled_pixel_are_left_out_of_the_results(
    start: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_masked(tmp_path / "images", train=4, val=2)
    for folder in ("images", "masks"):
        (data / folder / "test").mkdir()
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(data / "images/test/0.png")
    Image.fromarray(np.full((32, 32), 255, np.uint8)).save(data / "masks/test/0.png")
    with caplog.at_level("INFO"):
        assert (
            main(
                command(
                    start,
                    data,
                    tmp_path / "run",
                    *SETTINGS,
                    "schedule.steps=1",
                    "schedule.lr_warmup_steps=0",
                )
            )
            == 0
        )
    found = Results.read(tmp_path / "run")
    assert found is not None
    assert found.measured_on == "val"
    assert "the images of test have no labelled pixel" in caplog.text
