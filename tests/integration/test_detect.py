"""attmask finetune with a recipe of detection: results, resume, lengths, wrong input."""

import json
import shutil
from pathlib import Path

import pytest

from attmask import checkpoint
from attmask.cli import main
from attmask.data.synthetic import write_folder
from attmask.monitor import read_metrics
from attmask.tuning.results import Results
from tests.dense.made_images import write_boxed
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
    "detect-own",
    *FEW,
    "augment.sizes=[48,64]",
    "augment.longest=64",
    "shown.short_side=48",
    "shown.long_side=64",
    "head.channels=8",
    "head.cascade.channels=8",
    "head.cascade.hidden=16",
    "head.cascade.convs=1",
    "head.cascade.samples=16",
    "head.proposals.train_count=30",
    "head.proposals.test_count=30",
    "head.detections.score=0",
    "head.detections.count=10",
    "network.drop_path=0.2",
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_boxed(tmp_path_factory.mktemp("images"))


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
    assert (found.selected_on, found.measured_on) == ("val", "val")
    assert (found.last_epoch, found.last_step) == (3, 6)
    values = [r["detect.box_ap"] for r in read_metrics(whole) if "detect.box_ap" in r]
    assert len(values) == 4
    assert found.best["detect.box_ap"] == max(values[1:])
    assert found.measured == pytest.approx(found.best)
    assert (whole / "results" / "per_class.csv").is_file()
    kept = checkpoint.newest(whole / "best")
    assert kept is not None
    assert checkpoint.step_of(kept) == 2 * found.best_epoch


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bits(
    images: Path, start: Path, whole: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command(start, images, run, *SETTINGS)
    killed_and_resumed(words, run, tmp_path / "said", 1, 3)
    assert_same_runs(run, whole)


@pytest.mark.slow
def test_a_length_in_steps_ends_inside_an_epoch_and_is_made_longer(
    images: Path, start: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = command(start, images, run, *SETTINGS)
    assert main([*words, "schedule.steps=3"]) == 0
    epochs = [r["epoch"] for r in read_metrics(run) if "detect.box_ap" in r]
    assert (last_checkpoint(run).step, epochs) == (3, [0, 1, 2])
    assert main([*words, "schedule.steps=4", "--extend"]) == 0
    found = Results.read(run)
    assert found is not None
    assert (last_checkpoint(run).step, found.last_step) == (4, 4)


@pytest.mark.slow
def test_two_processes_train_and_go_on_to_the_same_bits_after_a_kill(
    images: Path, start: Path, tmp_path: Path
) -> None:
    whole, part = tmp_path / "whole", tmp_path / "part"
    settings = (*SETTINGS, "train.workers=1")
    in_two(command(start, images, whole, *settings), tmp_path)
    often = ("checkpoint.every_minutes=0", "train.timeout_minutes=0.2")
    words = command(start, images, part, *settings, *often)
    kill_two(words, part, tmp_path)
    assert 0 < saved(part) < 6
    in_two(words, tmp_path)
    assert_same_runs(whole, part)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (["train.sharding=fsdp"], "keeps whole networks; set train.sharding=none"),
        (["train.batch_size=1000"], "10 images are fewer than one batch of 1000"),
        (["augment.sizes=[100]"], "raise longest"),
        (["selection.split=test"], "there is no split test in"),
        (["selection.train=[train,val]", "selection.split=auto"], "are several annotation files"),
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
    assert wanted in complaint(capsys, command(start, images, run, *SETTINGS, *settings))
    assert not saved(run)


def test_folders_of_other_runs_are_refused_in_one_line(
    images: Path, start: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = complaint(capsys, command(start, images, start, *SETTINGS))
    assert "has the settings of a run of kind pretrain, not detect" in said
    said = complaint(capsys, command(start, images, whole, "--recipe", "segment-own", *SHORT))
    assert "has the settings of a run of kind detect, not segment" in said


def test_test_images_without_an_object_are_left_out_of_the_results(
    start: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = write_boxed(tmp_path / "images", train=4, val=2)
    empty = json.loads((data / "annotations/instances_val2017.json").read_text())
    empty["annotations"] = []
    (data / "annotations/instances_test2017.json").write_text(json.dumps(empty))
    shutil.copytree(data / "val2017", data / "test2017")
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
    assert "the images of test have no objects" in caplog.text


def test_boxes_without_masks_are_learned_alone(start: Path, tmp_path: Path) -> None:
    data = write_boxed(tmp_path / "images", train=4, val=2)
    for file in data.glob("annotations/*.json"):
        content = json.loads(file.read_text())
        for each in content["annotations"]:
            del each["segmentation"]
        file.write_text(json.dumps(content))
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
    (first, *_) = [r for r in read_metrics(tmp_path / "run") if "loss.total" in r]
    assert [first[f"loss.mask_{stage}"] for stage in (1, 2, 3)] == [0, 0, 0]
    assert first["loss.box_1"] >= 0
    assert not [key for r in read_metrics(tmp_path / "run") for key in r if "detect.mask" in key]
