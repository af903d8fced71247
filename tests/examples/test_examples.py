"""The examples run as they are written, and the masks in them come from the attention."""

import importlib.util
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attmask import Masker

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDS = {
    "dino_loop": (),
    "lightly_ibot": ("lightly",),
    "huggingface_trainer": ("transformers", "accelerate"),
}


@pytest.fixture(autouse=True)
def _imports_as_in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])


def test_every_example_is_run_here_and_named_in_the_readme() -> None:
    files = {file.stem for file in EXAMPLES.glob("*.py")} - {"generated"}
    assert files == set(NEEDS)
    named = re.findall(r"^\| \[(\w+)\.py\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE)
    assert set(named) == files


@pytest.mark.parametrize("name", NEEDS)
def test_an_example_trains_on_masks_of_the_most_attended_patches(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = [need for need in NEEDS[name] if importlib.util.find_spec(need) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    calls: list[tuple[Tensor, Tensor]] = []
    apply = Masker.__call__

    def record(masker: Masker, attention: Tensor, **named: Any) -> Tensor:
        mask = apply(masker, attention, **named)
        calls.append((attention, mask))
        return mask

    monkeypatch.setattr(Masker, "__call__", record)
    losses = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"](steps=4, batch_size=8)
    assert len(losses) == 4
    assert all(0 < loss < 20 for loss in losses)
    assert len(set(losses)) == 4, "it learns, or at least moves"
    assert len(calls) == (8 if name == "dino_loop" else 4)
    for attention, mask in calls:
        assert attention.shape == mask.shape
        assert attention.shape[1] == 64
        for row, hidden in zip(attention, mask, strict=True):
            assert not hidden.any() or row[hidden].min() >= row[~hidden].max()
    assert any(mask.any() for _, mask in calls)


def test_the_loss_of_masked_image_modelling_falls() -> None:
    pytest.importorskip("accelerate")
    losses = runpy.run_path(str(EXAMPLES / "huggingface_trainer.py"))["main"](12, 16)
    assert sum(losses[-5:]) / 5 < 0.8 * losses[0]


def test_the_calls_of_the_readme_run_as_they_are_written() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", (EXAMPLES / "README.md").read_text(), re.DOTALL)
    made: dict[str, Any] = {}
    exec(block, made)
    assert made["mask"].shape == made["attention"].shape == (8, 196)
    assert torch.equal(made["watched"].mean, made["attention"])
