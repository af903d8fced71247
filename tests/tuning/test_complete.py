"""A recipe with the checkpoint it starts from: its path from anywhere, and the input it wants."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from attmask.detection.config import DetectConfig
from attmask.errors import UserError
from attmask.finetuning.config import FinetuneConfig
from attmask.recipe import recipe_for
from attmask.segmentation.config import SegmentConfig
from attmask.tuning.complete import complete
from tests.evaluation.models import tiny_backbone


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of weights with the names of timm, for images of 32 pixels."""
    file = tmp_path / "weights.safetensors"
    save_file({k: torch.clone(t) for k, t in tiny_backbone().vit.state_dict().items()}, file)
    return file


@pytest.mark.parametrize("recipe", [FinetuneConfig(), SegmentConfig()])
def test_crops_have_the_size_of_the_networks_images_unless_it_is_set(
    weights: Path, tmp_path: Path, recipe: FinetuneConfig | SegmentConfig
) -> None:
    named = f"{weights}@heads=2"
    config = complete(recipe, named, tmp_path / "run", [])
    assert config.image_size == 32
    assert config.network.start == named
    assert complete(recipe, named, tmp_path / "run", ["augment.size=64"]).image_size == 64


def test_sizes_of_detection_stay_as_they_are(weights: Path, tmp_path: Path) -> None:
    config = complete(DetectConfig(), f"{weights}@heads=2", tmp_path / "run", ["seed=3"])
    assert config.augment == DetectConfig().augment
    assert config.seed == 3


def test_a_relative_path_becomes_absolute(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = complete(FinetuneConfig(), f"{weights.name}@heads=2", Path("run"), [])
    assert config.network.start == f"{weights}@heads=2"


def test_epochs_of_a_recipe_that_counts_steps_are_refused(weights: Path, tmp_path: Path) -> None:
    recipe, named = recipe_for(SegmentConfig, "segment-ade20k").config, f"{weights}@heads=2"
    with pytest.raises(UserError, match="the recipe is 160000 steps long"):
        complete(recipe, named, tmp_path / "run", ["schedule.epochs=5"])
    both = ["schedule.epochs=5", "schedule.steps=null"]
    assert complete(recipe, named, tmp_path / "run", both).schedule.epochs == 5


def test_what_is_no_checkpoint_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a checkpoint") as caught:
        complete(FinetuneConfig(), tmp_path / "nothing", tmp_path / "run", [])
    assert "\n" not in str(caught.value)
