import shutil
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer

from attmask.api import pretrain
from attmask.config import PretrainConfig
from attmask.data.config import IMAGENET_MEAN
from attmask.errors import UserError
from attmask.evaluation.loading import load_model, load_run
from attmask.evaluation.model import FrozenModel
from attmask.networks import build_distiller
from attmask.run_config import from_yaml
from tests.runs import SHORT, last_checkpoint


@pytest.fixture(scope="module")
def run(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "run"
    pretrain(scenes, recipe="tiny", out=out, overrides=[*SHORT, "monitor.knn_every_epochs=0"])
    return out


def first_weight(model: FrozenModel) -> torch.Tensor:
    weight: torch.Tensor = model.backbone.state_dict()["vit.patch_embed.proj.weight"]
    return weight


def test_a_run_is_its_teacher_and_an_at_sign_asks_for_another_network(run: Path) -> None:
    saved = last_checkpoint(run).tensors["weights"]
    key = "backbone.vit.patch_embed.proj.weight"
    assert torch.equal(first_weight(load_model(run)), saved[f"teacher.{key}"])
    assert torch.equal(first_weight(load_model(f"{run}@student")), saved[f"student.{key}"])
    start = build_distiller(from_yaml(run / "config.yaml", PretrainConfig)).state_dict()
    untrained = load_model(f"{run}@untrained")
    assert torch.equal(first_weight(untrained), start[f"teacher.{key}"])
    assert not torch.equal(first_weight(untrained), saved[f"teacher.{key}"])
    with pytest.raises(
        UserError, match=r"names an unknown network 'pupil'; use @teacher, @student"
    ):
        load_model(f"{run}@pupil")


def test_the_best_of_a_run_needs_no_other_checkpoint(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "checkpoints").rename(copy / "best")
    assert load_model(f"{copy}@best").digest == load_model(run).digest
    with pytest.raises(UserError, match=r"has no network best; .* @best of a run with guard"):
        load_model(f"{run}@best")


def test_a_checkpoint_of_a_run_may_be_named_itself(run: Path) -> None:
    step = sorted((run / "checkpoints").iterdir())[-1]
    assert load_model(step).digest == load_model(run).digest
    assert load_model(step).folder == run


def test_a_run_brings_its_images_size_and_prototypes(run: Path) -> None:
    model = load_model(run, "shown")
    assert (model.name, model.folder) == ("shown", run)
    assert model.image_size == 32
    assert model.prototypes is not None
    assert (model.prototypes.centring, model.prototypes.temperature) == ("mean", 0.04)
    saved = last_checkpoint(run).tensors["weights"]
    assert torch.equal(model.prototypes.centre, saved["cls_centre.value"])
    cls = torch.randn(3, model.backbone.width)
    assert torch.allclose(model.prototypes.assign(cls).sum(-1), torch.ones(3))


def test_prototypes_know_that_their_run_balances(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (other / "config.yaml").read_text()
    assert text.count("centring: mean") == 1
    (other / "config.yaml").write_text(text.replace("centring: mean", "centring: sinkhorn"))
    prototypes = load_model(other).prototypes
    assert prototypes is not None
    assert prototypes.centring == "sinkhorn"


def test_a_student_has_no_assignments_because_centre_and_temperature_are_the_teachers(
    run: Path,
) -> None:
    assert load_model(f"{run}@student").prototypes is None
    assert load_model(f"{run}@untrained").prototypes is not None


@pytest.mark.parametrize("which", ["", "@student", "@untrained"])
@pytest.mark.parametrize("name", ["checkpoints/step-99999", "checkpoints/nothing", "a/folder"])
def test_what_a_run_does_not_have_is_no_checkpoint(run: Path, name: str, which: str) -> None:
    (run / "a" / "folder").mkdir(parents=True, exist_ok=True)
    with pytest.raises(UserError, match=r"is not a checkpoint; give a run, one of its step-"):
        load_model(f"{run / name}{which}")


def test_a_run_without_its_settings_is_told_apart_from_no_run(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "config.yaml").unlink()
    with pytest.raises(UserError, match=r"no config\.yaml; .*attmask resume"):
        load_model(tmp_path / "run")


def test_a_file_of_weights_is_somebody_elses_backbone(tmp_path: Path) -> None:
    vit = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=64)
    save_file(vit.state_dict(), tmp_path / "theirs.safetensors")
    model = load_model(tmp_path / "theirs.safetensors")
    assert (model.image_size, model.prototypes, model.folder) == (64, None, None)
    assert torch.equal(first_weight(model), vit.state_dict()["patch_embed.proj.weight"])


def test_a_run_says_where_its_weights_come_from(run: Path) -> None:
    saved = last_checkpoint(run)
    steps_per_epoch = saved.info["images"] // 8
    trained = {"step": saved.step, "epoch": round(saved.step / steps_per_epoch, 2)}
    assert saved.step > 0
    assert load_model(run).origin == {"weights": "teacher", **trained}
    assert load_model(f"{run}@student").origin == {"weights": "student", **trained}
    assert load_model(f"{run}@untrained").origin == {
        "weights": "untrained",
        "step": 0,
        "epoch": 0,
    }


def test_attention_is_that_of_the_runs_block_or_of_the_last(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (other / "config.yaml").read_text()
    assert text.count("layer: null") == 1
    (other / "config.yaml").write_text(text.replace("layer: null", "layer: 1"))
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        last = load_model(run).backbone(images).attention
        chosen = load_model(other).backbone(images).attention
        again = load_model(other, last_block=True).backbone(images).attention
    assert torch.equal(again, last)
    assert not torch.equal(chosen, last)


def test_weights_that_do_not_fit_their_config_are_one_line(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(run, other)
    text = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(text.replace("depth: 2", "depth: 3", 1))
    assert text.count("depth: 2") == 1
    with pytest.raises(UserError, match=r"do not fit .*config.yaml; restore the original"):
        load_model(other)


@pytest.mark.parametrize(("channels", "mean"), [(3, IMAGENET_MEAN), (1, (0.459,))])
def test_a_file_says_nothing_of_its_pixels_so_they_are_imagenets(
    channels: int, mean: tuple[float, ...], tmp_path: Path
) -> None:
    vit = VisionTransformer(
        img_size=32, patch_size=8, in_chans=channels, embed_dim=64, depth=1, num_heads=1
    )
    torch.save(vit.state_dict(), tmp_path / "x.pth")
    found = load_model(tmp_path / "x.pth")
    assert found.data.mean == mean
    assert (found.data.channels, found.image_size) == (channels, 32)
    assert found.origin == {
        "weights": "file",
        "layout": "timm",
        "tensors": "18 used, 2 left out (head.weight, head.bias), none missing",
    }


def test_behind_a_file_stands_what_it_does_not_tell(tmp_path: Path) -> None:
    vit = VisionTransformer(img_size=32, patch_size=8, embed_dim=48, depth=1, num_heads=3)
    torch.save(vit.state_dict(), tmp_path / "x.pth")
    found = load_model(f"{tmp_path / 'x.pth'}@heads=3,positions=size")
    assert (found.backbone.heads, found.backbone.positions) == ((3,), "size")
    assert load_model(f"{tmp_path / 'x.pth'}@heads=3").backbone.positions == "reference"
    for wrong in ("heads=0", "positions=cubic", "size=3", "heads=3,"):
        with pytest.raises(
            UserError, match=r"is not an option of a weights file; use positions=size"
        ):
            load_model(f"{tmp_path / 'x.pth'}@{wrong}")
    with pytest.raises(
        UserError, match="neither a weights file, nor a Hugging Face directory, nor"
    ):
        load_model(f"{tmp_path}@heads=3")


def test_a_network_of_timm_is_shown_the_pixels_it_was_made_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = timm.create_model

    def without_weights(name: str, pretrained: bool = False, num_classes: int = 0) -> object:
        return create(name, depth=1, num_classes=num_classes)

    monkeypatch.setattr(timm, "create_model", without_weights)
    assert load_model("vit_tiny_patch16_224").data.mean == (0.5, 0.5, 0.5)
    dino = load_model("timm:vit_small_patch16_224.dino")
    assert dino.data.mean == IMAGENET_MEAN
    assert (dino.origin["weights"], dino.backbone.positions) == ("timm", "reference")
    assert dino.origin["layout"] == "timm vit_small_patch16_224.dino"
    asked = load_model("timm:vit_small_patch16_224.dino@positions=size")
    assert asked.backbone.positions == "size"


@pytest.mark.parametrize("name", ["nowhere", "nowhere.safetensors"])
def test_what_is_no_checkpoint_is_refused_with_what_would_be_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"is not a checkpoint; give a run, one of its step-"):
        load_run(tmp_path / name)
    with pytest.raises(UserError, match=r"is not a checkpoint; give a run, one of its step-"):
        load_model(tmp_path / name)


@pytest.mark.parametrize("harm", ["missing", "damaged", "not opened"])
def test_moments_of_the_optimizer_are_not_read_for_an_evaluation_but_to_resume(
    run: Path, scenes: Path, tmp_path: Path, harm: str
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (moments,) = copy.glob("checkpoints/*/optimizer.safetensors")
    size = moments.stat().st_size
    if harm == "damaged":
        moments.write_bytes(bytes(size))
    else:
        moments.unlink()
    if harm == "not opened":
        moments.mkdir()  # which cannot be opened as a file
    for named in (copy, moments.parent):
        assert load_model(named).digest == load_model(run).digest
    wanted = (
        "cannot read the checkpoint" if harm == "not opened" else "no checkpoint in .* is whole"
    )
    with pytest.raises(UserError, match=wanted):
        pretrain(scenes, recipe="tiny", out=copy, overrides=[*SHORT, "monitor.knn_every_epochs=0"])
