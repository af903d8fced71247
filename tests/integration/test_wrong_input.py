"""Wrong input: one clear line on stderr, exit status 1, no traceback, and nothing lost."""

import resource
import shutil
from pathlib import Path

import pytest
from PIL import Image

from attmask.cli import main
from tests.runs import SHORT, Forked, finish, last_checkpoint, start


def complaint(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that a command ends with."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as end:
        status = int(end.code or 0)
    shown = capsys.readouterr()
    assert status == 1
    assert shown.out == ""
    assert shown.err.startswith("attmask: ")
    assert shown.err.endswith("\n")
    assert shown.err.count("\n") == 1, shown.err
    return shown.err.removeprefix("attmask: ").rstrip()


def pretrain(capsys: pytest.CaptureFixture[str], data: Path, out: Path, *overrides: str) -> str:
    return complaint(capsys, "pretrain", data, "--recipe", "tiny", "--out", out, *SHORT, *overrides)


# What the settings are


@pytest.mark.parametrize(
    ("override", "line"),
    [
        (
            "views.global_size=36",
            "views.global_size: image size 36 is not a multiple of patch size 8; use 32 or 40",
        ),
        (
            "views.local_size=20",
            "views.local_size: image size 20 is not a multiple of patch size 8; use 16 or 24",
        ),
        (
            "masking.ratio=[0.5,0.1]",
            "masking.ratio: mask ratio [0.5, 0.1]: wanted 0 <= a <= b <= 1, e.g. [0.1, 0.5]",
        ),
        (
            "masking.ratio=[0.5,1.5]",
            "masking.ratio: mask ratio [0.5, 1.5]: wanted 0 <= a <= b <= 1, e.g. [0.1, 0.5]",
        ),
        (
            "schedule.lr_warmup_epochs=3",
            "schedule.lr_warmup_epochs=3 is longer than the training of 2 epochs; "
            "use at most 2, or schedule.epochs=3",
        ),
        (
            "schedule.cls_temperature_warmup_epochs=4",
            "schedule.cls_temperature_warmup_epochs=4 is longer than the training of 2 epochs; "
            "use at most 2, or schedule.epochs=4",
        ),
        (
            "schedule.patch_temperature_warmup_epochs=4",
            "schedule.patch_temperature_warmup_epochs=4 is longer than the training of 2 epochs; "
            "use at most 2, or schedule.epochs=4",
        ),
        (
            "masking.ration=[0.1,0.5]",
            "there is no setting 'masking.ration'; did you mean masking.ratio",
        ),
        (
            "data.channels=0",
            "data.channels: 0 channels are impossible; use 3, 1 or more",
        ),
        ("masking.ratio=[0.5]", "masking.ratio=[0.5]: wanted 2 values, e.g. [0.1, 0.5]"),
        ("masking.ratio=0.5", "masking.ratio=0.5: wanted 2 values, e.g. [0.1, 0.5]"),
        ("masking.ratio=[0.1,0.2,0.3]", "masking.ratio=[0.1, 0.2, 0.3]: wanted 2 values, e.g."),
        (
            "data.mean=[123.675,116.28,103.53]",
            "data.mean [123.675, 116.28, 103.53] is in 0..255, but pixel values are in 0..1; "
            "use data.mean=[0.485,0.456,0.406]",
        ),
        (
            "data.std=[58.395]",
            "data.std [58.395] is in 0..255, but pixel values are in 0..1; use data.std=[0.229]",
        ),
        (
            "train.batch_size=100",
            "48 images are fewer than one batch of 100; "
            "use train.batch_size=48 or less, or more images",
        ),
        (
            "optim.betas=[1,1]",
            "optim.betas: [1.0, 1.0] are not valid betas of AdamW: wanted 0 <= beta < 1, "
            "e.g. [0.9, 0.999]",
        ),
        ("train.device=meta", "device meta cannot store values and cannot train; use auto or cpu"),
        (
            "train.device=cuda:99",
            "device cuda:99 is not available; use auto or cpu",
        ),
    ],
)
def test_an_impossible_setting_is_one_line_before_anything_is_written(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, line: str
) -> None:
    said = pretrain(capsys, scenes, tmp_path / "run", override)
    assert said.startswith(line)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("pretrain", "", "--recipe", "tiny"),
        ("inspect", ""),
        ("evaluate", "timm:vit_tiny_patch16_224", "knn", "--data", ""),
        ("evaluate", "timm:vit_tiny_patch16_224", "knn", "--data", "knn="),
    ],
)
def test_an_empty_place_of_the_images_is_refused_and_not_the_current_folder(
    scenes: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
) -> None:
    monkeypatch.chdir(scenes)
    before = sorted(scenes.iterdir())
    said = complaint(capsys, *arguments)
    assert "the path of the images is empty, perhaps an unset variable; give a folder" in said
    assert sorted(scenes.iterdir()) == before


def test_hints_beyond_the_smallest_ratio_are_refused(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = pretrain(
        capsys, scenes, tmp_path / "run", "masking.strategy=hint", "masking.show_max=0.2"
    )
    assert "show_max 0.2 must be between 0 and the smallest mask ratio, 0.1; lower show_max" in said


def test_an_unknown_recipe_is_answered_with_a_near_one(
    scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = complaint(capsys, "pretrain", scenes, "--recipe", "ibot-hihg")
    assert said.startswith("there is no recipe 'ibot-hihg'; did you mean ibot-high")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["pretain"], "there is no command pretain; did you mean pretrain?"),
        (["pretrain", "x", "--ouy", "y"], "unknown argument --ouy"),
        (["pretrain", "x", "stray"], "unknown argument stray"),
        (["recipes", "a=b"], "unknown argument a=b"),
        (
            ["evaluate", "x", "knn", "--data", "d", "--precision", "fp64"],
            "--precision fp64: use auto, bf16, fp16 or fp32",
        ),
        (["pretrain"], "the following arguments are required: DATA"),
        ([], "the following arguments are required: COMMAND"),
    ],
)
def test_a_wrong_command_line_says_where_help_is(
    capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    said = complaint(capsys, *arguments)
    assert said.startswith(line)
    assert "--help" in said


def test_an_option_that_is_written_as_a_setting_is_shown_as_an_option(
    scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = complaint(capsys, "evaluate", "run", "knn", "--data", scenes, "seed=5")
    assert said == "seed is an option of attmask evaluate; use --seed 5"


# What the images are


def test_folders_without_a_readable_image_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "run"
    assert pretrain(capsys, data, out).startswith(f"there is no {data}; give a folder of images")
    data.mkdir()
    assert pretrain(capsys, data, out).startswith(f"no images in {data}: it has no files; wanted")
    (data / "a.txt").write_text("words")
    assert "found 1 files with endings .txt; wanted .jpg" in pretrain(capsys, data, out)
    for name in ("b.jpg", "c.jpg"):
        (data / name).write_text("words")
    said = pretrain(capsys, data, out, "train.batch_size=2")
    assert said.startswith(f"no readable image in {data}: tried 2 of 2, the first: cannot read")
    assert "not a picture in a known format" in said
    assert pretrain(capsys, data / "b.jpg", out).startswith(f"{data / 'b.jpg'} is a file")
    assert pretrain(capsys, tmp_path / ("x" * 300), out).endswith("Flowers-102 as published")
    assert not out.exists()


def test_images_that_cannot_be_read_do_not_stop_the_others(scenes: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(scenes / "train", data)
    for path in sorted(data.rglob("*.png"))[:5]:
        path.write_text("words")
    out = tmp_path / "run"
    words = ["pretrain", str(data), "--recipe", "tiny", "--out", str(out), *SHORT]
    assert main([*words, "data.unreadable_limit=0.2"]) == 0
    assert len((out / "unreadable.tsv").read_text().splitlines()) == 5


def test_too_many_unreadable_images_stop_a_run_that_a_higher_limit_lets_go_on(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "data", tmp_path / "run"
    shutil.copytree(scenes / "train", data)
    for path in sorted(data.rglob("*.png"))[:5]:
        path.write_text("words")
    said = pretrain(capsys, data, out)
    assert "of 48 images" in said
    assert f"the list is {out / 'unreadable.tsv'}" in said
    words = ["pretrain", str(data), "--recipe", "tiny", "--out", str(out), *SHORT]
    assert main([*words, "data.unreadable_limit=0.2"]) == 0


# Where it goes


@pytest.fixture(scope="module")
def finished(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    assert main(["pretrain", str(scenes), "--recipe", "tiny", "--out", str(out), *SHORT]) == 0
    return out


def contents(run: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_a_run_of_other_settings_is_refused_by_their_names_and_untouched(
    scenes: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(finished)
    said = pretrain(capsys, scenes, finished, "seed=1", "masking.strategy=low")
    assert "holds a run with other settings (seed: 0 in the run, 1 given; masking.strategy" in said
    assert said.endswith("choose another --out, or use the same settings to resume")
    assert contents(finished) == before


def test_a_run_of_other_images_is_refused_and_untouched(
    scenes: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(finished)
    said = pretrain(capsys, scenes / "val", finished)
    assert "holds a run on 48 images, these are 20; choose another --out" in said
    assert contents(finished) == before


def test_a_folder_that_is_no_run_is_refused_and_untouched(
    scenes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "is not empty and holds no run; choose another --out" in pretrain(
        capsys, scenes, tmp_path
    )
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    said = pretrain(capsys, scenes, tmp_path / "thesis.tex")
    assert said.endswith("thesis.tex is a file; choose another --out")
    said = pretrain(capsys, scenes, tmp_path / "thesis.tex" / "run")
    assert "Not a directory; make room or choose another --out" in said
    assert pretrain(capsys, scenes, tmp_path / ("x" * 300)).endswith("choose another --out")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_full_disk_at_the_start_of_a_resumed_run_spoils_nothing(
    scenes: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(finished)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        said = pretrain(capsys, scenes, finished)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large; make room or choose another --out" in said
    assert contents(finished) == before


# The same in real processes


def test_a_process_says_one_line_and_ends_with_status_1(tmp_path: Path) -> None:
    status, out, err = finish(start("pretrain", tmp_path, "--recipe", "tiny"))
    assert (status, out) == (1, "")
    assert err.startswith(f"attmask: no images in {tmp_path}: it has no files; wanted .jpg")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_in_a_real_run_ends_it_with_one_line_and_it_goes_on_later(
    scenes: Path, tmp_path: Path
) -> None:
    data, out = tmp_path / "flat", tmp_path / "run"
    data.mkdir()
    for path in (scenes / "train").rglob("*.png"):
        Image.open(path).save(data / path.name)
    command = ("pretrain", data, "--recipe", "tiny", "--out", out, *SHORT)
    process = Forked(tmp_path / "said", *command)
    # Room for config and metrics, not for a checkpoint.
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (50_000, resource.RLIM_INFINITY))
    status, said = process.finish()
    assert (status, "Traceback" in said) == (1, False)
    last = said.splitlines()[-1]
    assert last.startswith("attmask: cannot write the checkpoint")
    assert last.endswith("make room, then start the same command again")
    assert list((out / "checkpoints").iterdir()) == []
    assert main([str(word) for word in command]) == 0
    assert last_checkpoint(out).step == 12


def test_a_launch_without_ranks_is_refused(
    capsys: pytest.CaptureFixture[str],
    scenes: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    line = pretrain(capsys, scenes, tmp_path / "run")
    assert line == (
        "WORLD_SIZE says that 2 processes were launched, but RANK is not set; launch them with "
        "--processes 2, torchrun or srun, or unset WORLD_SIZE"
    )
    assert not (tmp_path / "run").exists()
