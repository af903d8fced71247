import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.bench import Bench
from attmask.evaluation.datasets.labelled import Labelled, Split
from attmask.evaluation.encoding import CentreCrop
from attmask.evaluation.evaluate import measure, measure_all
from attmask.evaluation.subject import Subject
from attmask.evaluation.task import Measures, Task
from attmask.settings import Config, setting
from tests.evaluation.subjects import bench_in, tiny_subject


class MeanLength(Config):
    """The mean length of a feature."""

    factor: float = setting(1.0, "times this")

    def measure(self, subject: Subject, data: Split, bench: Bench) -> Measures:
        found = bench.features(subject, data.test, CentreCrop(subject.image_size))
        length = float(found.vectors.norm(dim=1).mean())
        return Measures({"length": self.factor * length}, notes=("said",), details={"a": [1]})


LENGTH = Task("length", MeanLength(factor=2.0), Labelled(per_class=3), 7, "how long")


def test_a_card_holds_the_number_and_how_it_came_about(scenes: Path, tmp_path: Path) -> None:
    subject, bench = tiny_subject(), bench_in(tmp_path)
    data = LENGTH.dataset.open(scenes)
    card = measure(LENGTH, subject, data, scenes, bench)
    assert card.numbers["length"] > 0
    assert (card.task, card.version, card.checkpoint) == ("length", 7, "tiny")
    assert card.protocol == {"kind": "MeanLength", "factor": 2.0}
    assert card.dataset == {"kind": "Labelled", "per_class": 3, "percent": None}
    assert card.images["test"] == 20
    assert card.images["train"] < 48
    assert card.hashes["network"] == subject.digest
    assert card.hashes["train"] != card.hashes["test"]
    assert (card.unreadable, card.data) == ({}, str(scenes))
    assert (card.notes, card.details) == (["said"], {"a": [1]})
    assert (card.format, card.device, card.processes, card.seed) == ("fp32", "cpu", 1, 0)
    assert json.loads(json.dumps(card.to_dict())) == card.to_dict()


def test_every_card_of_a_run_is_kept_at_once(scenes: Path, tmp_path: Path) -> None:
    class Broken(MeanLength):
        def measure(self, subject: Subject, data: Split, bench: Bench) -> Measures:
            raise UserError("no disk")

    broken = Task("broken", Broken(), Labelled(), 1, "")
    subject = tiny_subject(folder=tmp_path / "run")
    places = {"length": scenes, "broken": scenes}
    with pytest.raises(UserError, match="no disk"):
        measure_all([LENGTH, broken], [(subject, bench_in(tmp_path))], places)
    (kept,) = (tmp_path / "run" / "evaluations").iterdir()
    (card,) = json.loads(kept.read_text())
    assert card["task"] == "length"


def test_several_networks_give_a_card_each_and_the_same_one_replaces_its_own(
    scenes: Path, tmp_path: Path
) -> None:
    subjects = [tiny_subject(seed, f"net {seed}", tmp_path / "run") for seed in (0, 1, 0)]
    pairs = [(subject, bench_in(tmp_path)) for subject in subjects]
    cards = measure_all([LENGTH], pairs, {"length": scenes})
    assert [card.checkpoint for card in cards] == ["net 0", "net 1", "net 0"]
    assert cards[0].numbers == cards[2].numbers != cards[1].numbers
    assert len(list((tmp_path / "run" / "evaluations").iterdir())) == 2
    other_seed = replace(bench_in(tmp_path), seed=1)
    measure_all([LENGTH], [(subjects[0], other_seed)], {"length": scenes})
    assert len(list((tmp_path / "run" / "evaluations").iterdir())) == 3


def test_a_card_counts_the_images_that_were_read(scenes: Path, tmp_path: Path) -> None:
    shutil.copytree(scenes, tmp_path / "images")
    data = Labelled().open(tmp_path / "images")
    (tmp_path / "images/val" / data.test.name(4)).write_bytes(b"no picture")
    task = replace(LENGTH, dataset=Labelled())
    card = measure(task, tiny_subject(), data, tmp_path / "images", bench_in(tmp_path))
    assert (card.images, card.unreadable) == ({"train": 48, "test": 19}, {"test": 1})


def test_a_missing_data_set_is_said_before_anything_is_measured(
    scenes: Path, tmp_path: Path
) -> None:
    later = Task("later", MeanLength(), Labelled(), 1, "")
    subject = tiny_subject(folder=tmp_path / "run")
    places = {"length": scenes, "later": tmp_path / "nowhere"}
    with pytest.raises(UserError, match=r"there is no .*nowhere"):
        measure_all([LENGTH, later], [(subject, bench_in(tmp_path))], places)
    assert not (tmp_path / "run").exists()


def test_a_run_that_cannot_be_written_to_loses_no_number(
    scenes: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("a file")
    subject = tiny_subject(folder=tmp_path / "run")
    (card,) = measure_all([LENGTH], [(subject, bench_in(tmp_path))], {"length": scenes})
    assert card.numbers
    assert "cannot write" in caplog.text
