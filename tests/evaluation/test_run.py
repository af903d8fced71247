import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.catalog import find_tasks
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.table import render
from attmask.evaluation.run import UnfinishedError, measure, measure_all
from attmask.evaluation.task import Measures, Task
from attmask.metric import Metric
from attmask.settings import Config, setting
from tests.evaluation.models import extractor_in, tiny_model


class MeanLength(Config):
    """The mean length of a feature."""

    factor: float = setting(1.0, "times this")

    def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
        found = extractor.features(model, data.test, CenterCrop(model.image_size))
        length = float(found.vectors.norm(dim=1).mean())
        metric = Metric("length.length", self.factor * length, "", None)
        return Measures((metric,), notes=("said",), details={"a": [1]})


LENGTH = Task("length", MeanLength(factor=2.0), Labelled(per_class=3), 7, "how long")


def test_a_card_holds_the_number_and_how_it_came_about(scenes: Path, tmp_path: Path) -> None:
    model, extractor = tiny_model(), extractor_in(tmp_path)
    data = LENGTH.dataset.open(scenes)
    card = measure(LENGTH, model, data, scenes, extractor)
    assert card.values["length.length"] > 0
    assert (card.task, card.version, card.checkpoint) == ("length", 7, "tiny")
    assert card.protocol == {"kind": "MeanLength", "factor": 2.0}
    assert card.dataset == {
        "kind": "Labelled",
        "split": "auto",
        "per_class": 3,
        "percent": None,
        "channels": None,
    }
    assert card.images["val"] == 20
    assert card.images["train"] < 48
    assert card.hashes["network"] == model.digest
    assert card.hashes["train"] != card.hashes["val"]
    assert (card.unreadable, card.data) == ({}, str(scenes))
    assert (card.notes, card.details) == (["said"], {"a": [1]})
    assert (card.format, card.device, card.processes, card.seed) == ("fp32", "cpu", 1, 0)
    assert json.loads(json.dumps(card.to_dict())) == card.to_dict()
    assert card.network == model.describe(32)


def test_every_card_of_a_run_is_kept_at_once(scenes: Path, tmp_path: Path) -> None:
    class Broken(MeanLength):
        def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
            raise UserError("no disk")

    broken = Task("broken", Broken(), Labelled(), 1, "")
    model = tiny_model(folder=tmp_path / "run")
    paths = {"length": scenes, "broken": scenes}
    with pytest.raises(UserError, match="no disk"):
        measure_all([LENGTH, broken], [(model, extractor_in(tmp_path))], paths)
    (kept,) = (tmp_path / "run" / "evaluations").iterdir()
    (card,) = json.loads(kept.read_text())
    assert card["task"] == "length"


def test_several_networks_give_a_card_each_and_the_same_one_replaces_its_own(
    scenes: Path, tmp_path: Path
) -> None:
    models = [tiny_model(seed, f"net {seed}", tmp_path / "run") for seed in (0, 1, 0)]
    pairs = [(model, extractor_in(tmp_path)) for model in models]
    cards = measure_all([LENGTH], pairs, {"length": scenes})
    assert [card.checkpoint for card in cards] == ["net 0", "net 1", "net 0"]
    assert cards[0].values == cards[2].values != cards[1].values
    assert len(list((tmp_path / "run" / "evaluations").iterdir())) == 2
    other_seed = replace(extractor_in(tmp_path), seed=1)
    measure_all([LENGTH], [(models[0], other_seed)], {"length": scenes})
    assert len(list((tmp_path / "run" / "evaluations").iterdir())) == 3


def test_a_card_counts_the_images_that_were_read(scenes: Path, tmp_path: Path) -> None:
    shutil.copytree(scenes, tmp_path / "images")
    data = Labelled().open(tmp_path / "images")
    (tmp_path / "images/val" / data.test.name(4)).write_bytes(b"no picture")
    task = replace(LENGTH, dataset=Labelled())
    card = measure(task, tiny_model(), data, tmp_path / "images", extractor_in(tmp_path))
    assert (card.images, card.unreadable) == ({"train": 48, "val": 19}, {"val": 1})


def test_a_missing_data_set_is_said_before_anything_is_measured(
    scenes: Path, tmp_path: Path
) -> None:
    later = Task("later", MeanLength(), Labelled(), 1, "")
    model = tiny_model(folder=tmp_path / "run")
    paths = {"length": scenes, "later": tmp_path / "nowhere"}
    with pytest.raises(UserError, match=r"there is no .*nowhere"):
        measure_all([LENGTH, later], [(model, extractor_in(tmp_path))], paths)
    assert not (tmp_path / "run").exists()


def test_a_run_that_cannot_be_written_to_loses_no_number(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("a file")
    model = tiny_model(folder=tmp_path / "run")
    (card,) = measure_all([LENGTH], [(model, extractor_in(tmp_path))], {"length": scenes})
    assert card.values
    assert "cannot write" in caplog.text


class Demanding(MeanLength):
    """What cannot be measured on networks of some names."""

    refused: str = setting("", "name of the network that is refused")

    def check(self, model: FrozenModel, data: Split) -> None:
        if model.name == self.refused:
            raise UserError(f"{model.name} is not good enough")


def test_the_needs_of_all_tasks_on_all_networks_are_checked_before_the_first_is_measured(
    scenes: Path, tmp_path: Path
) -> None:
    demanding = Task("demanding", Demanding(refused="last"), Labelled(), 1, "")
    folder = tmp_path / "run"
    pairs = [(tiny_model(name=n, folder=folder), extractor_in(tmp_path)) for n in ("first", "last")]
    paths = {"length": scenes, "demanding": scenes}
    with pytest.raises(UserError, match="last is not good enough"):
        measure_all([LENGTH, demanding], pairs, paths)
    assert not folder.exists()
    assert not (tmp_path / "cache").exists()
    assert len(measure_all([LENGTH, demanding], pairs[:1], paths)) == 2


@pytest.mark.parametrize("fault", [UserError("no disk"), RuntimeError("a fault of ours")])
def test_a_task_that_fails_does_not_hide_the_others(
    fault: Exception, scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(MeanLength):
        def measure(self, model: FrozenModel, data: Split, extractor: FeatureExtractor) -> Measures:
            raise fault

    broken = Task("broken", Broken(), Labelled(), 1, "")
    pairs = [(tiny_model(seed, f"net {seed}"), extractor_in(tmp_path)) for seed in (0, 1)]
    with pytest.raises(UnfinishedError) as caught:
        measure_all([broken, LENGTH], pairs, {"length": scenes, "broken": scenes})
    assert [card.checkpoint for card in caught.value.cards] == ["net 0", "net 1"]
    first, second = caught.value.failures
    assert first.startswith("broken on net 0 failed: ")
    assert second.startswith("broken on net 1 failed: ")
    assert str(fault) in first
    assert str(caught.value) == f"{first}; {second}"
    assert ("Traceback" in caplog.text) == isinstance(fault, RuntimeError)


def test_the_image_size_is_said_before_images_are_read_and_how_to_choose_a_smaller_one(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (knn,) = find_tasks(["knn"], ["image_size=32"])
    measure_all([knn], [(tiny_model(), extractor_in(tmp_path))], {"knn": scenes})
    assert f"tiny: knn on {scenes}, images of 32 pixels" in caplog.messages
    large = replace(tiny_model(), image_size=520)
    every = Labelled().open(scenes)
    few = Split(every.train.subset([0]), every.test.subset([0]))
    caplog.clear()
    (knn,) = find_tasks(["knn"])
    other = replace(knn, dataset=_Given(few))
    measure_all([other], [(large, extractor_in(tmp_path))], {"knn": scenes})
    assert caplog.messages[0] == (
        f"tiny: knn on {scenes}, images of 520 pixels (slow; knn.image_size=224 is faster)"
    )


class _Given(Labelled):
    """Images that are open already."""

    def __init__(self, split: Split) -> None:
        super().__init__()
        object.__setattr__(self, "opened", split)

    def open(self, path: Path) -> Split:
        found: Split = object.__getattribute__(self, "opened")
        return found


def test_a_card_says_what_the_network_is_and_what_it_was_shown(
    scenes: Path, tmp_path: Path
) -> None:
    model = replace(tiny_model(), origin={"weights": "teacher", "step": 12, "epoch": 2.0})
    (knn,) = find_tasks(["knn"], ["image_size=40"])
    (card,) = measure_all([knn], [(model, extractor_in(tmp_path))], {"knn": scenes})
    assert card.network == {
        "weights": "teacher",
        "step": 12,
        "epoch": 2.0,
        "image size": 40,
        "patch size": 8,
        "width": 24,
        "depth": 2,
        "heads": 2,
        "registers": 0,
        "positions": "size",
        "channels": 3,
        "mean": list(model.data.mean),
        "std": list(model.data.std),
    }
    old = {name: value for name, value in card.to_dict().items() if name != "network"}
    assert Card.from_dict(old).network == {}, "cards from before this field open"
    text = render([card, replace(Card.from_dict(old), checkpoint="old")], width=200)
    first = text.splitlines()[0]
    assert first == (
        "tiny: teacher, step 12 (epoch 2), 2 blocks of width 24, 2 heads, patch 8, "
        "positions by size, mean 0.485 0.456 0.406, std 0.229 0.224 0.225"
    )
    assert "knn (version 1; train 48, val 20; 40 pixels)" in text
    assert "top-1 accuracy (k = 20)" in text
