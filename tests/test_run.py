"""A run's folder is begun once, taken up again, and never mixed with another run."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attmask import checkpoint
from attmask.checkpoint import Checkpoint
from attmask.config import PretrainConfig
from attmask.data.source import Source
from attmask.data.stores.files import Files
from attmask.errors import UserError
from attmask.recipe import load_recipe
from attmask.run import RunFolder, default_folder, origin_of, saved_config
from attmask.run_config import from_yaml, override
from tests.sources import of_files

TINY = load_recipe("tiny")
IMAGES = of_files(Path("images"), ("a/1.png", "b/2.png"), (0, 1), ("a", "b"))


def folder(path: Path, config: PretrainConfig = TINY, images: Source = IMAGES) -> RunFolder:
    return RunFolder(path / "run", config, images)


def saved(path: Path) -> RunFolder:
    begun = folder(path)
    assert begun.resume() is None
    begun.save(7, {"weights": {"w": torch.arange(3.0)}}, {"scaler": {"scale": 2.0}})
    return begun


def test_a_new_run_writes_its_settings(tmp_path: Path) -> None:
    assert folder(tmp_path).resume() is None
    assert from_yaml(tmp_path / "run" / "config.yaml", PretrainConfig) == TINY
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["config.yaml"]


def test_a_run_is_taken_up_where_it_was_saved(tmp_path: Path) -> None:
    saved(tmp_path)
    found = folder(tmp_path).resume()
    assert found is not None
    assert found.step == 7
    assert torch.equal(found.tensors["weights"]["w"], torch.arange(3.0))
    assert found.info["scaler"] == {"scale": 2.0}


def test_other_settings_are_refused_once_there_is_something_to_lose(tmp_path: Path) -> None:
    other = override(TINY, ["train.batch_size=8"])
    folder(tmp_path).resume()
    assert folder(tmp_path, other).resume() is None  # out of memory at the first step, say
    assert from_yaml(tmp_path / "run" / "config.yaml", PretrainConfig) == other
    saved(tmp_path / "second")
    with pytest.raises(
        UserError, match=r"other settings \(train\.batch_size: 16 in the run, 8 given\)"
    ):
        folder(tmp_path / "second", other).resume()
    assert from_yaml(tmp_path / "second" / "run" / "config.yaml", PretrainConfig) == TINY


def test_operational_settings_may_change(tmp_path: Path) -> None:
    saved(tmp_path)
    assert folder(tmp_path, override(TINY, ["train.workers=3"])).resume() is not None


@pytest.mark.parametrize(
    ("images", "complaint"),
    [
        (IMAGES.subset([0]), "a run on 2 images, these are 1"),
        (replace(IMAGES, store=Files(Path(), ("a/1.png", "b/3.png"))), "2 images of other names"),
        (replace(IMAGES, labels=np.array([1, 0])), "2 images of other names or classes"),
        (replace(IMAGES, labels=None, classes=()), "2 images of other names or classes"),
    ],
)
def test_other_images_are_refused(tmp_path: Path, images: Source, complaint: str) -> None:
    saved(tmp_path)
    with pytest.raises(UserError, match=complaint):
        folder(tmp_path, images=images).resume()


def test_the_images_may_have_moved(tmp_path: Path) -> None:
    saved(tmp_path)
    assert folder(tmp_path, images=replace(IMAGES, root=Path("elsewhere"))).resume() is not None


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").write_text("precious")
    with pytest.raises(UserError, match="is not empty and holds no run; choose another --out"):
        folder(tmp_path).resume()
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_deleted_settings_are_taken_from_the_checkpoint_and_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path)
    settings = tmp_path / "run" / "config.yaml"
    settings.unlink()
    assert saved_config(tmp_path / "run", [PretrainConfig]) == TINY
    with pytest.raises(UserError, match=r"other settings \(seed: 0 in the run, 3 given\)"):
        folder(tmp_path, override(TINY, ["seed=3"])).resume()
    assert folder(tmp_path).resume() is not None
    assert "config.yaml is missing; its settings are taken from the checkpoint" in caplog.text
    assert from_yaml(settings, PretrainConfig) == TINY


def test_deleted_settings_of_an_older_run_are_named_with_the_way_to_make_them_again(
    tmp_path: Path,
) -> None:
    made = Checkpoint(3, {"weights": {}}, {"images": 2, "fingerprint": "", "scaler": {}})
    checkpoint.save(tmp_path / "run" / "checkpoints", made, keep=1)
    with pytest.raises(UserError, match=r"config\.yaml is missing .*put it back, or make it again"):
        folder(tmp_path).resume()


def test_a_disk_without_room_for_a_checkpoint_is_one_line_with_both_figures(
    tmp_path: Path,
) -> None:
    new = folder(tmp_path / "not" / "yet")
    new.check_room(1)
    with pytest.raises(UserError) as caught:
        new.check_room(10**17)
    assert re.fullmatch(
        r"a checkpoint takes 100000000\.0 GB, but the disk of .*run has [\d.]+ [GM]B free; "
        r"make room or choose another --out",
        str(caught.value),
    )
    assert list(tmp_path.iterdir()) == []


def test_where_the_images_are_is_kept_and_a_spoilt_note_is_one_line(tmp_path: Path) -> None:
    begun = saved(tmp_path)
    (tmp_path / "images").mkdir()
    begun.keep_origin(tmp_path / "images")
    assert origin_of(tmp_path / "run") == tmp_path / "images"
    for junk in ("", "[]", "{}", '{"data": 3}'):
        (tmp_path / "run" / "run.json").write_text(junk)
        with pytest.raises(UserError, match=r"run\.json does not say where .*; use .* --data DATA"):
            origin_of(tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        ([], "birds-tiny"),
        (["train.workers=3", "monitor.knn_k=5"], "birds-tiny"),
        (["seed=0"], "birds-tiny"),
        (["seed=3", "masking.strategy=hint"], "birds-tiny+seed-3+strategy-hint"),
        (["masking.ratio=[0.2, 0.30]"], "birds-tiny+ratio-0.2,0.3"),
    ],
)
def test_a_run_without_a_name_is_named_by_what_changes_its_result(
    overrides: list[str], name: str
) -> None:
    config = override(TINY, overrides)
    assert default_folder(Path("data/birds"), "tiny", TINY, config) == Path("runs") / name


def test_long_names_stay_short_and_apart() -> None:
    many = ["schedule.momentum=0.9123456789", "optim.betas=[0.9123456789,0.9123456789]"]
    first, second = (
        default_folder(Path("b" * 80), "tiny", TINY, override(TINY, [*many, f"optim.clip={clip}"]))
        for clip in (1, 2)
    )
    assert first != second
    assert len(first.name) < 120


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UserError, match="is a file; choose another --out"):
        folder(tmp_path).resume()
