"""A run that goes on from a checkpoint of the authors' code."""

import logging
from pathlib import Path

import pytest
import torch

from attmask.api import pretrain
from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.exporting.reference import write_reference
from attmask.reference_layout import read_reference
from attmask.reference_resume import our_weights
from attmask.run_config import from_yaml, override
from tests.authors_files import checkpoint, saved
from tests.runs import SHORT, last_checkpoint

SETTINGS = (
    *SHORT,
    "monitor.knn_every_epochs=0",
    "schedule.epochs=2",
    "checkpoint.keep_every_epochs=1",
    "masking.strategy=high",
)


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("resume") / "run"
    pretrain(scenes, recipe="tiny", out=out, overrides=SETTINGS)
    return out


@pytest.fixture(scope="module")
def file(run: Path) -> Path:
    """The state after the first of two epochs in the authors' layout, without our own entries."""
    first = min((run / "checkpoints").glob("step-*"))
    path = write_reference(first, run.parent / "checkpoint.pth")
    content = torch.load(path, weights_only=False)
    del content["step"]
    torch.save(content, path)
    return path


def test_a_resumed_run_ends_with_the_weights_of_one_that_was_never_left(
    scenes: Path, run: Path, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "run"
    with caplog.at_level(logging.INFO, "attmask"):
        outcome = pretrain(scenes, recipe="tiny", out=out, overrides=SETTINGS, resume_from=file)
    straight = last_checkpoint(run)
    assert outcome.finished
    assert (outcome.first_step, outcome.steps) == (straight.step // 2, straight.step)
    resumed = last_checkpoint(out)
    for group in ("weights", "optimizer"):
        assert resumed.tensors[group].keys() == straight.tensors[group].keys()
        for name, tensor in resumed.tensors[group].items():
            if name != "teacher.backbone.mask_token":  # the reference's teacher has none
                assert torch.equal(tensor, straight.tensors[group][name]), name
    said = [record.getMessage() for record in caplog.records]
    assert any("checkpoint of the authors' code after 1 epoch, resumed at step" in s for s in said)
    assert not any("other settings" in line or "config.yaml is missing" in line for line in said)
    again = pretrain(scenes, recipe="tiny", out=out, overrides=SETTINGS, resume_from=file)
    assert again.was_finished


def test_what_does_not_fit_the_settings_names_the_setting(run: Path, file: Path) -> None:
    config = from_yaml(run / "config.yaml", PretrainConfig)
    found = read_reference(file)
    patch = config.backbone.patch
    for change, says in (
        ("head.prototypes=100", "change head.prototypes"),
        ("head.hidden=96", r"change head\.hidden"),
        (f"views.global_size={config.views.global_size + 2 * patch}", "change views.global_size"),
        ("backbone.depth=7", "change backbone.name, width or depth"),
        ("head.shared=false", "use head.shared=true"),
    ):
        with pytest.raises(UserError, match=says) as caught:
            our_weights(file, found, override(config, [change]))
        assert "\n" not in str(caught.value)


def test_a_refused_checkpoint_leaves_no_run(scenes: Path, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    content = torch.load(file, weights_only=False)
    changed = saved(tmp_path, {**content, "epoch": 2})
    overrides = [*SETTINGS, "schedule.epochs=1"]
    with pytest.raises(UserError, match=r"more than schedule\.epochs=1"):
        pretrain(scenes, recipe="tiny", out=out, overrides=overrides, resume_from=changed)
    other = saved(tmp_path, checkpoint())
    with pytest.raises(UserError, match="the settings want"):
        pretrain(scenes, recipe="tiny", out=out, overrides=SETTINGS, resume_from=other)
    assert not (out / "config.yaml").exists()
    assert not (out / "checkpoints").exists()


def test_other_arguments_and_other_images_are_told(
    scenes: Path, file: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = torch.load(file, weights_only=False)
    content["args"].lr = 0.25
    changed = saved(tmp_path, content)
    overrides = [*SETTINGS, "train.batch_size=16"]
    pretrain(scenes, recipe="tiny", out=tmp_path / "run", overrides=overrides, resume_from=changed)
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "was trained with other settings: lr 0.25, here" in said
    assert "other images or another batch size" in said


def test_weights_to_start_from_are_refused_beside_a_checkpoint_to_go_on_from(
    scenes: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=r"goes on with its own weights.*leave init= out"):
        pretrain(
            scenes,
            recipe="tiny",
            out=tmp_path / "run",
            overrides=["init=vit.safetensors"],
            resume_from=tmp_path / "checkpoint.pth",
        )
    assert not (tmp_path / "run").exists()
