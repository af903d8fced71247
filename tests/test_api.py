"""The functions do what the commands do, on every layout of images."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from timm.models.vision_transformer import VisionTransformer

import attmask
from attmask.api import configure, default_recipe, load_backbone, pretrain
from attmask.cli import main
from attmask.errors import UserError
from attmask.monitor import read_metrics
from attmask.networks import build_distiller
from attmask.recipe import load_recipe
from attmask.run_config import override
from tests.runs import SHORT, environment, guarded_copy, last_checkpoint, same_tensors


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("api") / "run"
    outcome = pretrain(scenes, recipe="tiny", out=out, overrides=SHORT)
    assert outcome == attmask.loop.Outcome(out, 12, 12)
    return out


def test_pretrain_does_what_the_command_does(scenes: Path, tmp_path: Path, run: Path) -> None:
    out = tmp_path / "run"
    assert main(["pretrain", str(scenes), "--recipe", "tiny", "--out", str(out), *SHORT]) == 0
    assert same_tensors(last_checkpoint(out), last_checkpoint(run))
    assert (out / "config.yaml").read_text() == (run / "config.yaml").read_text()


def test_a_run_keeps_an_index_of_its_images_and_goes_on_with_it(scenes: Path, run: Path) -> None:
    for _ in range(2):  # images that were made a moment ago are indexed by the second start
        assert pretrain(scenes, recipe="tiny", out=run, overrides=SHORT).finished
        assert (run / "index.npz").is_file()


def test_a_recipe_may_be_a_file_or_a_config_and_overrides_a_mapping(
    scenes: Path, tmp_path: Path, run: Path
) -> None:
    pretrain(str(scenes), recipe=run / "config.yaml", out=str(tmp_path / "file"))
    config = override(load_recipe("tiny"), ["train.threads=1"])
    mapping = {"train.batch_size": 8, "train.workers": 0, "monitor.tensorboard": False}
    pretrain(scenes, recipe=config, out=tmp_path / "config", overrides=mapping)
    for name in ("file", "config"):
        assert same_tensors(last_checkpoint(tmp_path / name), last_checkpoint(run))


def test_a_mapping_says_the_same_as_text() -> None:
    mapping = {
        "masking.ratio": (0.2, 0.3),
        "schedule.lr": 1e-5,
        "optim.clip": None,
        "train.compile": True,
        "masking.strategy": "random",
        "train.device": "cuda:1",
    }
    text = [
        "masking.ratio=[0.2, 0.3]",
        "schedule.lr=1e-5",
        "optim.clip=null",
        "train.compile=true",
        "masking.strategy=random",
        "train.device=cuda:1",
    ]
    assert configure("tiny", mapping) == configure("tiny", text)
    with pytest.raises(UserError, match=r"there is no setting 'masking\.ration'"):
        configure("tiny", {"masking.ration": 1})


@pytest.mark.parametrize(("accelerator", "recipe"), [(None, "cpu"), ("cuda", "small")])
def test_without_a_recipe_the_machine_decides(
    monkeypatch: pytest.MonkeyPatch, accelerator: str | None, recipe: str
) -> None:
    device = torch.device(accelerator) if accelerator else None
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: accelerator is not None)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: device)
    assert default_recipe() == recipe
    assert configure() == load_recipe(recipe)


def test_a_backbone_is_the_teachers_and_ready_to_use(run: Path) -> None:
    weights = last_checkpoint(run).tensors["weights"]
    backbone = load_backbone(run)
    assert isinstance(backbone.vit, VisionTransformer)
    assert not backbone.training
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, weights[f"teacher.backbone.{name}"])
    student = load_backbone(run, network="student").state_dict()
    assert all(torch.equal(v, weights[f"student.backbone.{k}"]) for k, v in student.items())
    assert any(not torch.equal(v, student[k]) for k, v in backbone.state_dict().items())
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(backbone.vit(images), backbone(images).cls)


def test_the_backbone_of_a_guarded_run_is_the_best_unless_the_teachers_is_asked_for(
    run: Path, tmp_path: Path
) -> None:
    guarded = guarded_copy(run, tmp_path / "guarded")
    teacher = load_backbone(run).get_parameter("vit.norm.weight")
    assert torch.equal(load_backbone(guarded).get_parameter("vit.norm.weight"), teacher / 2)
    assert torch.equal(
        load_backbone(guarded, network="best").get_parameter("vit.norm.weight"), teacher / 2
    )
    assert torch.equal(
        load_backbone(guarded, network="teacher").get_parameter("vit.norm.weight"), teacher
    )


def test_a_backbone_comes_from_a_run_or_from_one_of_its_checkpoints(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = load_backbone(run).state_dict()
    folder = max((run / "checkpoints").iterdir())
    monkeypatch.chdir(folder.parent)
    for path in (folder, str(folder), folder.name):
        loaded = load_backbone(path).state_dict()
        assert all(torch.equal(loaded[name], newest[name]) for name in newest)


def test_what_is_no_run_and_what_has_no_checkpoint_is_said(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a checkpoint; give a run"):
        load_backbone(tmp_path)
    with pytest.raises(UserError, match="is not a checkpoint"):
        load_backbone(tmp_path / "nowhere")
    (tmp_path / "config.yaml").write_text((run / "config.yaml").read_text())
    with pytest.raises(UserError, match="has no checkpoint yet; resume its training"):
        load_backbone(tmp_path)


def evaluated(run: Path) -> set[str]:
    """The kinds of measures that a run has logged."""
    names = {name for record in read_metrics(run) for name in record}
    return {name.partition(".")[0] for name in names} & {"knn", "objects"}


def short(data: Path, out: Path, *overrides: str) -> Path:
    more = (*SHORT, "train.batch_size=16", "schedule.epochs=1", *overrides)
    assert pretrain(data, recipe="tiny", out=out, overrides=more).finished
    return out


def test_train_and_val_are_measured_on_val_with_objects_where_masks_are(run: Path) -> None:
    assert evaluated(run) == {"knn", "objects"}


def test_a_labelled_folder_without_val_is_measured_on_a_part_of_it(
    scenes: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for index, path in enumerate(sorted((scenes / "train").rglob("*.png"))[:30]):
        folder = data / f"class {index % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.open(path).save(folder / path.name)
    assert evaluated(short(data, tmp_path / "run")) == {"knn"}


def test_a_flat_folder_needs_no_labels_and_may_be_grey(scenes: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for path in sorted((scenes / "train").rglob("*.png"))[:20]:
        Image.open(path).save(data / f"{path.stem}.jpg")
    out = short(data, tmp_path / "run", "data.channels=1")
    assert evaluated(out) == set()
    backbone = load_backbone(out)
    assert backbone.channels == 1
    assert backbone(torch.randn(1, 1, 32, 32)).cls.shape == (1, 48)


def test_the_run_begins_with_the_configs_own_weights(scenes: Path, tmp_path: Path) -> None:
    """An interrupted or zero-length start is the untrained network."""
    frozen = ("schedule.lr=1e-30", "schedule.lr_final=0", "schedule.momentum=1")
    out = short(scenes, tmp_path / "run", *frozen)
    config = load_recipe(out / "config.yaml")
    initial = build_distiller(config).teacher.backbone.state_dict()
    teacher = load_backbone(out).state_dict()
    assert all(torch.equal(teacher[name], initial[name]) for name in initial)


@pytest.mark.parametrize(
    "call",
    [
        lambda out: pretrain("", recipe="tiny", out=out),
        lambda out: attmask.inspect(""),
        lambda out: attmask.evaluate("timm:vit_tiny_patch16_224", "knn", data=""),
        lambda out: attmask.evaluate("timm:vit_tiny_patch16_224", "knn", data={"knn": ""}),
    ],
)
def test_an_empty_place_of_the_images_is_refused(
    tmp_path: Path, call: Callable[[Path], object]
) -> None:
    with pytest.raises(UserError, match="the path of the images is empty"):
        call(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_array_of_two_readings_is_read_as_the_run_was_trained(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (24, 6, 12, 25), dtype=np.uint8)
    labels = np.arange(24) % 3
    file, run = tmp_path / "a.npz", tmp_path / "run"
    np.savez(file, x_train=pixels, y_train=labels, x_test=pixels[:6], y_test=labels[:6])
    with pytest.raises(UserError, match="6 channels of 12 × 25 pixels or 25 channels of 6 × 12;"):
        pretrain(file, recipe="tiny", out=run, overrides=SHORT)
    quick = [*SHORT, "data.channels=6", "schedule.epochs=1", "monitor.knn_every_epochs=0"]
    assert pretrain(file, recipe="tiny", out=run, overrides=quick).finished
    (card,) = attmask.evaluate(run, "knn", data=file, overrides=["ks=[1]"], workers=0)
    assert card.values["knn.top1"] == 100
    assert card.images == {"train": 24, "test": 6}
    assert card.dataset["channels"] == 6


def test_importing_is_light_and_names_come_on_first_use() -> None:
    script = (
        "import sys, attmask\n"
        "assert 'torch' not in sys.modules, 'import attmask must not wait for PyTorch'\n"
        "from attmask.masking import High as same\n"
        "from attmask import *\n"
        "assert High is same and callable(pretrain) and callable(load_backbone)\n"
        "assert set(attmask.__all__) <= set(globals())\n"
    )
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True, timeout=120)


def test_a_name_that_does_not_exist_is_answered_with_those_that_do() -> None:
    with pytest.raises(AttributeError, match=r"attmask has no 'pertrain'; it has Block, High"):
        _ = attmask.pertrain
    for name in attmask.__all__:
        assert getattr(attmask, name).__name__ == name
