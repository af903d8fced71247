"""The Python example of the README does what it says on a folder of images."""

import re
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.runs import SHORT

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_python_example_runs_as_it_is_written(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").mkdir()
    for index, file in enumerate(sorted((scenes / "train").rglob("*.png"))[:16]):
        Image.open(file).convert("RGB").save(tmp_path / "images" / f"{index:02}.jpg")
    (example,) = (
        block
        for block in re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
        if "attmask.transform" in block
    )
    monkeypatch.chdir(tmp_path)
    # The recipe is made small, nothing else: an hour of training would show no more.
    settings = dict(override.split("=") for override in SHORT) | {"schedule.epochs": "1"}
    short = example.replace('recipe="cpu"', 'recipe="tiny"')
    short = short.replace('{"schedule.epochs": 50}', repr(settings))
    assert short.count("tiny") == 1
    assert repr(settings) in short
    made: dict[str, object] = {}
    exec(short, made)
    tokens, files = made["tokens"], made["files"]
    assert isinstance(files, list)
    cls = getattr(tokens, "cls", None)
    assert isinstance(cls, torch.Tensor)
    assert cls.shape == (8, 48)
    assert cls.isfinite().all()
    assert len({tuple(row) for row in cls.tolist()}) == 8, "eight images, eight features"
    shutil.rmtree(tmp_path / "runs")
