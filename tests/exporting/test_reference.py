"""Our checkpoints in the authors' layout, and back again."""

from pathlib import Path

import pytest
import torch

from attmask import checkpoint
from attmask.checkpoint import OPTIMIZER, WEIGHTS, Checkpoint
from attmask.config import PretrainConfig
from attmask.distill import Distiller
from attmask.errors import UserError
from attmask.exporting.reference import write_reference
from attmask.models.interop import import_network
from attmask.optim import OptimConfig, build_optimizer, load_optimizer_tensors, optimizer_tensors
from attmask.recipe import load_recipe
from attmask.reference_layout import read_reference
from attmask.reference_resume import our_weights
from attmask.run_config import to_yaml
from tests.authors_files import parameters, two_groups
from tests.golden_steps import SCHEDULE, STEPS_PER_EPOCH, golden_distiller, golden_step
from tests.reference import BACKBONE, HEAD, IMAGE_SIZE, tensors

BATCH = 4


def golden_config() -> PretrainConfig:
    """The settings of the golden trajectory."""
    recipe = load_recipe("ibot-high")
    return recipe.model_copy(
        update={
            "backbone": BACKBONE,
            "head": HEAD,
            "views": recipe.views.model_copy(update={"global_size": IMAGE_SIZE, "local_size": 32}),
            "schedule": SCHEDULE,
            "train": recipe.train.model_copy(update={"batch_size": BATCH}),
        }
    )


def saved_run(run: Path, distiller: Distiller, optimizer: torch.optim.AdamW, step: int) -> Path:
    """The state as a checkpoint of a run."""
    run.mkdir()
    (run / "config.yaml").write_text(to_yaml(golden_config()))
    groups = {
        WEIGHTS: distiller.state_dict(),
        OPTIMIZER: optimizer_tensors(optimizer, distiller.student),
    }
    info = {"images": BATCH * STEPS_PER_EPOCH, "scaler": {}}
    checkpoint.save(run / "checkpoints", Checkpoint(step, groups, info), keep=1)
    return run


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state after three golden steps, in the authors' layout."""
    folder = tmp_path_factory.mktemp("reference")
    distiller = golden_distiller()
    optimizer = build_optimizer(distiller.student, OptimConfig())
    for step in range(3):
        golden_step(distiller, optimizer, step)
    run = saved_run(folder / "run", distiller, optimizer, step=3)
    assert write_reference(run, folder / "checkpoint.pth") == folder / "checkpoint.pth"
    return folder / "checkpoint.pth"


def test_three_steps_then_export_import_and_the_next_three_losses_are_the_references(
    exported: Path,
) -> None:
    found = read_reference(exported)
    assert (found.epoch, found.step, found.optimizer_steps) == (1, 3, 3)
    distiller = golden_distiller()
    optimizer = build_optimizer(distiller.student, OptimConfig())
    distiller.load_state_dict(our_weights(exported, found, golden_config()))
    load_optimizer_tensors(optimizer, distiller.student, dict(found.moments))
    for step in range(3, 6):
        (losses,) = golden_step(distiller, optimizer, step)
        total, cls, patch = tensors("trajectory")["record"][step].tolist()[:3]
        assert losses.total.item() == pytest.approx(total, abs=1e-4)
        assert float(losses.cls) == pytest.approx(cls, abs=1e-4)
        assert float(losses.patch) == pytest.approx(patch, abs=1e-4)


def test_the_file_has_the_names_of_the_references_own(exported: Path) -> None:
    golden = tensors("trajectory")
    content = torch.load(exported, weights_only=False)
    student = [k.removeprefix("w.") for k in golden if k.startswith("w.")]
    teacher = [k.removeprefix("teacher_end.") for k in golden if k.startswith("teacher_end.")]
    assert list(content["student"]) == [f"module.{name}" for name in student]
    assert [name for name in content["teacher"] if "last_layer2" not in name] == [
        name for name in teacher if "last_layer2" not in name
    ]
    assert (content["ibot_loss"]["center"].shape, content["ibot_loss"]["center2"].shape) == (
        (1, 96),
        (1, 1, 96),
    )
    assert (content["args"].out_dim, content["args"].patch_size) == (96, 8)


def test_the_references_optimizer_takes_the_state(exported: Path) -> None:
    named = parameters()
    optimizer = torch.optim.AdamW(two_groups(named))
    optimizer.load_state_dict(torch.load(exported, weights_only=False)["optimizer"])
    for parameter in named.values():
        assert optimizer.state[parameter]["exp_avg"].shape == parameter.shape
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()


def test_the_importer_of_backbones_takes_the_teacher_of_the_file(exported: Path) -> None:
    found = import_network(exported, heads=3)
    teacher = read_reference(exported).teacher
    assert found.detection.layout == "DINO"  # a teacher has no mask token
    for name, tensor in found.backbone.vit.state_dict().items():
        assert torch.equal(tensor, teacher[f"backbone.vit.{name}"])


def test_what_is_no_pretraining_run_is_refused(exported: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run or one of its step"):
        write_reference(exported, tmp_path / "x.pth")
    run = exported.parent / "run"
    assert write_reference(run / "checkpoints" / "step-00000003", tmp_path / "x.pth").exists()
    with pytest.raises(UserError, match="cannot write"):
        write_reference(run, run / "config.yaml" / "x.pth")
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "config.yaml").write_text((run / "config.yaml").read_text())
    with pytest.raises(UserError, match="has no checkpoint yet"):
        write_reference(empty, tmp_path / "y.pth")
