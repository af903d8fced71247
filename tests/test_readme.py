"""The Python examples of the README and the command below its picture run as they are written."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from attmask.models.backbone import BackboneConfig, build_backbone
from tests.runs import SHORT

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def test_the_python_example_runs_as_it_is_written(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "images").mkdir()
    for index, file in enumerate(sorted((scenes / "train").rglob("*.png"))[:16]):
        Image.open(file).convert("RGB").save(tmp_path / "images" / f"{index:02}.jpg")
    (example,) = (block for block in EXAMPLES if "attmask.transform" in block)
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


def test_the_example_of_masking_alone_hides_what_its_settings_say() -> None:
    (example,) = (block for block in EXAMPLES if "Masker(" in block)
    made: dict[str, object] = {}
    exec(example, made)
    mask, attention = made["mask"], made["attention"]
    assert isinstance(mask, torch.Tensor)
    assert isinstance(attention, torch.Tensor)
    assert mask.shape == attention.shape == (8, 196)
    shares = mask.float().mean(dim=1)
    assert 0 < (shares > 0).sum() < 8, "about half of the images are masked"
    assert shares.max() <= 0.5


def test_no_python_example_is_left_untested() -> None:
    assert len(EXAMPLES) == 2


def test_the_command_below_the_picture_draws_a_row_for_each_photograph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (command,) = re.findall(r"^python (scripts/\S+) (WEIGHTS .*)$", README, flags=re.MULTILINE)
    script, words = command[0], command[1].split()
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=16, width=64, depth=1, heads=1)
    vit = build_backbone(config, image_size=224, channels=3).vit
    save_file(vit.state_dict(), tmp_path / "weights.safetensors")
    words[0] = "weights.safetensors@heads=1"
    photos = [word for word in words if word.endswith((".jpg", "coffee.png"))]
    for index, photo in enumerate(photos):
        Image.new("RGB", (320, 240), (40 * index, 90, 120)).save(tmp_path / photo)
    drawn = Path(words[words.index("--out") + 1])
    (tmp_path / drawn.parent).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [script, *words])
    runpy.run_path(str(ROOT / script), run_name="__main__")
    with Image.open(drawn) as mine, Image.open(ROOT / drawn) as shown:
        assert mine.size == shown.size, "the same rows and columns as the picture in the README"
