import shutil
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from attmask.api import pretrain
from attmask.config import from_yaml
from attmask.errors import UserError
from attmask.evaluation.subject import Subject
from attmask.evaluation.loading import load_run, load_subject, names_of
from attmask.networks import build_distiller
from tests.runs import SHORT, last_checkpoint


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("subjects") / "run"
    pretrain(scenes, recipe="tiny", out=out, overrides=[*SHORT, "monitor.knn_every_epochs=0"])
    return out


def first_weight(subject: Subject) -> torch.Tensor:
    weight: torch.Tensor = subject.backbone.state_dict()["vit.patch_embed.proj.weight"]
    return weight


def test_a_run_is_its_teacher_and_an_at_sign_asks_for_another_network(run: Path) -> None:
    saved = last_checkpoint(run).tensors["weights"]
    key = "backbone.vit.patch_embed.proj.weight"
    assert torch.equal(first_weight(load_subject(run)), saved[f"teacher.{key}"])
    assert torch.equal(first_weight(load_subject(f"{run}@student")), saved[f"student.{key}"])
    start = build_distiller(from_yaml(run / "config.yaml")).state_dict()
    untrained = load_subject(f"{run}@untrained")
    assert torch.equal(first_weight(untrained), start[f"teacher.{key}"])
    assert not torch.equal(first_weight(untrained), saved[f"teacher.{key}"])
    with pytest.raises(UserError, match=r"asks for 'pupil' of a run; use @teacher, @student"):
        load_subject(f"{run}@pupil")


def test_a_checkpoint_of_a_run_may_be_named_itself(run: Path) -> None:
    step = sorted((run / "checkpoints").iterdir())[-1]
    assert load_subject(step).digest == load_subject(run).digest
    assert load_subject(step).folder == run


def test_a_run_brings_its_images_size_and_prototypes(run: Path) -> None:
    subject = load_subject(run, "shown")
    assert (subject.name, subject.folder) == ("shown", run)
    assert subject.image_size == 32
    assert subject.prototypes is not None
    assert (subject.prototypes.centring, subject.prototypes.temperature) == ("mean", 0.04)
    saved = last_checkpoint(run).tensors["weights"]
    assert torch.equal(subject.prototypes.centre, saved["cls_centre.value"])
    cls = torch.randn(3, subject.backbone.width)
    assert torch.allclose(subject.prototypes.assign(cls).sum(-1), torch.ones(3))


def test_prototypes_know_that_their_run_balances(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (other / "config.yaml").read_text()
    assert text.count("centring: mean") == 1
    (other / "config.yaml").write_text(text.replace("centring: mean", "centring: sinkhorn"))
    prototypes = load_subject(other).prototypes
    assert prototypes is not None
    assert prototypes.centring == "sinkhorn"


def test_a_student_has_no_assignments_because_centre_and_temperature_are_the_teachers(
    run: Path,
) -> None:
    assert load_subject(f"{run}@student").prototypes is None
    assert load_subject(f"{run}@untrained").prototypes is not None


@pytest.mark.parametrize("which", ["", "@student", "@untrained"])
@pytest.mark.parametrize("name", ["checkpoints/step-99999", "checkpoints/nothing", "a/folder"])
def test_what_a_run_does_not_have_is_no_checkpoint(run: Path, name: str, which: str) -> None:
    (run / "a" / "folder").mkdir(parents=True, exist_ok=True)
    with pytest.raises(UserError, match=r"is no checkpoint; give a run, one of its step-"):
        load_subject(f"{run / name}{which}")


def test_a_file_of_weights_is_somebody_elses_backbone(tmp_path: Path) -> None:
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64)
    save_file(vit.state_dict(), tmp_path / "theirs.safetensors")
    subject = load_subject(tmp_path / "theirs.safetensors")
    assert (subject.image_size, subject.prototypes, subject.folder) == (64, None, None)
    assert torch.equal(first_weight(subject), vit.state_dict()["patch_embed.proj.weight"])


@pytest.mark.parametrize("name", ["nowhere", "nowhere.safetensors"])
def test_what_is_no_checkpoint_is_refused_with_what_would_be_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"is no checkpoint; give a run, one of its step-"):
        load_run(tmp_path / name)


def test_short_names_tell_checkpoints_apart() -> None:
    assert names_of(["runs/high", "runs/low@untrained"]) == ["high", "low@untrained"]
    assert names_of(["a/run", "b/run"]) == ["a/run", "b/run"]
