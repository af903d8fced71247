"""A network that can learn anything learns a few images by heart: eight real ones, from scratch."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
from PIL import Image

import attmask
from attmask.config import PretrainConfig
from attmask.monitor import read_metrics
from attmask.recipe import load_recipe
from attmask.run_config import override, to_yaml
from attmask.tuning.results import Finetuned
from tests.real_data import FOLDER, needs

IMAGES = 8
LARGE = 96**2  # pixels of an object, as COCO counts
SIMPLE = (
    "network.drop_path=0",
    "augment.flip=0",
    "schedule.lr_batch=null",
    "schedule.lr_falls=linear",
    "schedule.lr_warmup_steps=20",
    "optim.layer_decay=1",
    "optim.clip=1",
    "selection.patience=null",
    "train.precision=fp32",
    "train.workers=0",
    "train.threads=1",
    "monitor.tensorboard=false",
    "monitor.log_every_steps=1",
)


def untrained(folder: Path) -> str:
    """A small vision transformer with random weights, under the name of a run that has none."""
    settings = ("patch_size=16", "width=128", "depth=4", "heads=4", "init_std=0.09")
    config = override(load_recipe("tiny"), [f"backbone.{each}" for each in settings])
    assert isinstance(config, PretrainConfig)
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(config))
    return f"{folder}@untrained"


def total_losses(run: Path) -> list[float]:
    return [record["loss.total"] for record in read_metrics(run) if "loss.total" in record]


def assert_fell_to_a_third(losses: list[float]) -> None:
    assert sum(losses[-5:]) / 5 < losses[0] / 3


def overfit_segmentation(folder: Path, *settings: str) -> Finetuned:
    return attmask.finetune(
        untrained(folder / "start"),
        masked(folder / "images"),
        recipe="segment-own",
        out=folder / "run",
        overrides=[
            *SIMPLE,
            "head.dropout=0",
            "head.channels=64",
            "head.auxiliary_channels=64",
            "masks.ignored=[11]",
            "augment.size=128",
            "augment.scale=[1,1]",
            "augment.most_of_one_class=1",
            "augment.photometric=0",
            "schedule.steps=400",
            "schedule.lr=2e-3",
            "selection.every_epochs=1000",
            "train.batch_size=8",
            *settings,
        ],
    )


def masked(root: Path) -> Path:
    """Windows of CamVid's first images, for train and val alike.

    They are shown twice as large, because poles are thinner than the stride of the finest map.
    """
    for kind, ending in (("", "jpg"), ("annot", "png")):
        files = sorted((FOLDER / "camvid" / f"train{kind}").glob(f"*.{ending}"))[::40][:IMAGES]
        for split in ("train", "val"):
            (root / f"{split}{kind}").mkdir(parents=True)
            for path in files:
                window = Image.open(path).crop((208, 148, 272, 212))
                window.save(root / f"{split}{kind}" / f"{path.stem}.png")
    return root


@pytest.mark.slow
@needs("camvid")
def test_a_segmenter_learns_eight_images_by_heart(tmp_path: Path) -> None:
    results = overfit_segmentation(tmp_path).results
    assert results is not None
    assert results.measured["segment.miou"] >= 90
    assert_fell_to_a_third(total_losses(tmp_path / "run"))


def overfit_detection(folder: Path, *settings: str) -> Finetuned:
    return attmask.finetune(
        untrained(folder / "start"),
        boxed(folder / "images"),
        recipe="detect-own",
        out=folder / "run",
        overrides=[
            *SIMPLE,
            "head.channels=32",
            "head.cascade.channels=32",
            "head.cascade.hidden=256",
            "head.cascade.convs=1",
            "head.cascade.samples=64",
            "head.proposals.train_count=300",
            "head.proposals.test_count=300",
            "augment.sizes=[128]",
            "augment.longest=192",
            "shown.short_side=128",
            "shown.long_side=192",
            "schedule.steps=250",
            "schedule.lr=1e-3",
            "selection.every_epochs=1000",
            "train.batch_size=4",
            *settings,
        ],
    )


def boxed(root: Path) -> Path:
    """The first images of COCO128 with large objects alone, for train and val alike."""
    known = json.loads((FOLDER / "coco128/annotations/instances_train2017.json").read_text())
    least: dict[int, float] = defaultdict(lambda: math.inf)
    for each in known["annotations"]:
        least[each["image_id"]] = min(least[each["image_id"]], each["area"])
    images = [each for each in known["images"] if LARGE < least[each["id"]] < math.inf][:IMAGES]
    chosen = {each["id"] for each in images}
    objects = [each for each in known["annotations"] if each["image_id"] in chosen]
    few = {**known, "images": images, "annotations": objects}
    (root / "annotations").mkdir(parents=True)
    for split in ("train2017", "val2017"):
        (root / split).symlink_to(FOLDER / "coco128/train2017")
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(few))
    return root


@pytest.mark.slow
@needs("coco128")
def test_a_detector_learns_eight_images_by_heart(tmp_path: Path) -> None:
    results = overfit_detection(tmp_path).results
    assert results is not None
    assert results.measured["detect.box_ap50"] >= 80
    assert_fell_to_a_third(total_losses(tmp_path / "run"))
