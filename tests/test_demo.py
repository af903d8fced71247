"""The demo with a hundredth of its images: it finishes, reports and says where everything is."""

import re
from pathlib import Path

import pytest
from PIL import Image

from attmask import demo
from attmask.cli import main
from attmask.demo import Demo
from attmask.errors import UserError

QUICK = [
    "schedule.epochs=2",
    "schedule.lr_warmup_epochs=0",
    "train.batch_size=16",
    "train.workers=0",
    "train.threads=1",
    "views.global_size=32",
    "views.local_size=16",
    "backbone.width=48",
    "backbone.depth=2",
    "head.prototypes=32",
    "monitor.tensorboard=false",
]


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TRAIN_IMAGES", 48)
    monkeypatch.setattr(demo, "VAL_IMAGES", 20)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


def test_the_command_finishes_and_reports(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(out), "--seed", "3", *QUICK]) == 0
    text = capsys.readouterr().out
    for name in ("chance", "raw pixels", "untrained network", "trained", "gain"):
        assert re.search(rf"^  {name} +[+-]?\d+\.\d", text, re.MULTILINE), name
    for name in ("high", "hint", "block", "random", "low"):
        assert re.search(rf"^    {name} +\d+\.\d % of the object", text, re.MULTILINE), name
    assert "The object covers" in text
    assert "seed 3" in text
    for place in (out / "images", out / "run", out / "pictures"):
        assert str(place) in text
        assert place.is_dir()


def test_its_report_holds_what_was_measured_before_and_after(out: Path) -> None:
    again = Demo(out, seed=3, overrides=QUICK)
    assert again.train().finished
    report = again.report()
    assert report.baselines["chance"] == 10.0
    for accuracy in (
        report.before["knn.top1"],
        report.after["knn.top1"],
        *report.baselines.values(),
    ):
        assert 0 <= accuracy <= 100
    assert report.before["objects.area"] == report.after["objects.area"]
    assert report.before["objects.attention"] != report.after["objects.attention"]
    assert len(report.pictures) > 0
    for picture in report.pictures:
        with Image.open(picture) as image:
            assert image.format == "PNG"


def test_another_seed_in_the_same_place_is_refused(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (out / "run" / "config.yaml").read_bytes()
    assert main(["demo", "--out", str(out), "--seed", "4", *QUICK]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith(f"attmask: {out}")
    assert "choose another" in said
    assert (out / "run" / "config.yaml").read_bytes() == before


def test_a_folder_with_other_things_is_refused_and_untouched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "holiday.jpg").write_bytes(b"precious")
    assert main(["demo", "--out", str(tmp_path), *QUICK]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"attmask: {tmp_path} is not empty and holds no demo; choose another --out"
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "images", tmp_path / "images" / "holiday.jpg"]


def test_a_demo_that_measures_nothing_is_refused_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"monitor\.knn_every_epochs=0 .*; use 1"):
        Demo(tmp_path, overrides=["monitor.knn_every_epochs=0"])
    assert list(tmp_path.iterdir()) == []
