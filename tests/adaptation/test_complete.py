"""A config follows the weights it starts from."""

from pathlib import Path

import pytest

from attmask.adaptation.complete import complete
from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.models.interop import import_backbone
from attmask.overrides import parse_yaml
from attmask.recipe import load_recipe
from attmask.run_config import any_config, override, to_yaml
from tests.adaptation.foreign import write_weights

TINY = load_recipe("tiny")


def test_the_backbone_is_described_by_the_weights(tmp_path: Path) -> None:
    file = write_weights(tmp_path / "vit.safetensors", registers=2)
    config = complete(TINY, tmp_path / "run", [f"init={file}", "backbone.drop_path=0.3"])
    own = config.backbone
    assert (own.patch_size, own.width, own.depth, own.heads, own.registers) == (8, 48, 2, 3, 2)
    assert own.positions == import_backbone(file).positions
    assert own.drop_path == 0.3
    assert config.init == str(file)


def test_a_relative_path_is_kept_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_weights(tmp_path / "vit.safetensors")
    monkeypatch.chdir(tmp_path)
    found = complete(TINY, tmp_path / "run", ["init=vit.safetensors"]).init
    assert found == str(tmp_path / "vit.safetensors")


def test_another_architecture_cannot_be_asked_for(tmp_path: Path) -> None:
    file = write_weights(tmp_path / "vit.safetensors")
    with pytest.raises(UserError, match=r"backbone\.width=96 was given"):
        complete(TINY, tmp_path / "run", [f"init={file}", "backbone.width=96"])


def test_crops_must_fit_the_patches_of_the_weights(tmp_path: Path) -> None:
    file = write_weights(tmp_path / "vit.safetensors")
    with pytest.raises(UserError, match="image size 36 is not a multiple of patch size 8"):
        complete(TINY, tmp_path / "run", [f"init={file}", "views.global_size=36"])


def test_sparing_a_backbone_needs_weights_to_start_from(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="add init=WEIGHTS"):
        complete(load_recipe("adapt"), tmp_path / "run")
    with pytest.raises(UserError, match="add init=WEIGHTS"):
        complete(TINY, tmp_path / "run", ["adapt.blocks=1"])


def test_a_config_without_weights_is_left_as_it_is(tmp_path: Path) -> None:
    assert complete(TINY, tmp_path / "run", ["seed=3"]) == override(TINY, ["seed=3"])


def test_the_guard_needs_evaluations() -> None:
    with pytest.raises(UserError, match=r"guard\.patience needs evaluations"):
        override(TINY, ["guard.patience=2", "monitor.knn_every_epochs=0"])


def test_settings_of_runs_from_before_are_read_with_the_defaults() -> None:
    values = parse_yaml(to_yaml(TINY).encode(), "config.yaml")
    assert isinstance(values, dict)
    for name in ("init", "adapt", "guard"):
        del values[name]
    assert any_config(values, [PretrainConfig], "config.yaml") == TINY
