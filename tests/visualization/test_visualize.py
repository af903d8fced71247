"""`visualize` as a user calls it, on tiny networks."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import save_file

from attmask.api import pretrain
from attmask.errors import UserError
from attmask.visualization.visualize import KINDS, visualize
from tests.evaluation.models import tiny_backbone


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    state = {k: t.contiguous() for k, t in tiny_backbone().vit.state_dict().items()}
    save_file(state, file, metadata={"heads": "2"})
    return file


def test_every_kind_is_a_file_named_after_it(
    weights: Path, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = visualize(weights, scenes, out=tmp_path / "new", kinds=KINDS, count=2)
    assert [file.name for file in files] == [f"{kind}.png" for kind in KINDS]
    assert sorted(files) == sorted((tmp_path / "new").iterdir())


def test_many_rows_are_several_pages_and_checkpoints_share_them(
    weights: Path, scenes: Path, tmp_path: Path
) -> None:
    files = visualize([weights, weights], scenes, out=tmp_path, count=3, max_rows=4)
    assert [file.name for file in files] == ["attention-1.png", "attention-2.png"]


def test_text_is_text_in_svg_also_of_hostile_names(weights: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 255, (40, 56), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "<b>$x_1$&\n\u202e.png")
    (file,) = visualize(weights, folder, out=tmp_path / "out", format="svg", crop="whole")
    texts = [e.text or "" for e in ElementTree.parse(file).iter() if e.tag.endswith("text")]
    assert "mean attention" in texts
    assert any("$&\\n\\u202e.png" in text for text in texts)


def test_a_run_is_animated_with_a_frame_for_each_checkpoint(scenes: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    overrides = [
        "schedule.epochs=2",
        "monitor.knn_every_epochs=0",
        "checkpoint.keep_every_epochs=1",
    ]
    pretrain(scenes, recipe="tiny", out=run, overrides=overrides)
    kept = len(list((run / "checkpoints").glob("step-*")))
    files = visualize(
        run, scenes, out=tmp_path / "out", kinds=["attention", "pca"], animate=True, count=2
    )
    for file in files:
        with Image.open(file) as picture:
            assert getattr(picture, "n_frames", 1) == kept + 1 > 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"indices": [99999]}, "use indices from 0"),
        ({"kinds": ["similarity"], "patch": (9, 0)}, "use 0,0 to 3,3"),
        ({"image_size": 33}, "not a multiple of patch size"),
        ({"kinds": ["masks"], "animate": True}, "cannot be animated"),
        ({"animate": True}, "not a run with checkpoints"),
        ({"ratios": [1.5]}, "mask ratio"),
        ({"layer": 7}, "layer 7"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    weights: Path, scenes: Path, tmp_path: Path, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError, match=said) as fault:
        visualize(weights, scenes, out=tmp_path, **settings)
    assert "\n" not in str(fault.value)
