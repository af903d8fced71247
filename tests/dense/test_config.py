"""Settings of dense prediction that do not fit together, and lengths in steps."""

import pytest

from attmask.dense.config import DenseConfig, in_steps
from attmask.detection.config import DetectConfig
from attmask.errors import UserError
from attmask.recipe import recipe_for
from attmask.run_config import override
from attmask.segmentation.config import SegmentConfig


def segment(*settings: str) -> SegmentConfig:
    return override(recipe_for(SegmentConfig, "segment-own").config, settings)


def detect(*settings: str) -> DetectConfig:
    return override(recipe_for(DetectConfig, "detect-own").config, settings)


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (["train.batch_size=6", "train.accumulate=4"], "does not split into 4 micro-batches"),
        (["selection.train=[train,val]", "selection.split=val"], "val is trained on too"),
        (["train.sharding=fsdp"], "keeps whole networks; set train.sharding=none"),
        (["schedule.steps=99"], "schedule.lr_warmup_steps=100 is longer than the training of 99"),
        (["schedule.lr_drop_epochs=[9,9]"], "do not rise from 0 on"),
        (["schedule.lr_drop_epochs=[-1,9]"], "do not rise from 0 on"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(settings: list[str], wanted: str) -> None:
    warmup = ["schedule.lr_warmup_steps=100"]
    for asked in (segment, detect):
        with pytest.raises(UserError) as caught:
            asked(*warmup, *settings)
        assert wanted in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("images", "steps", "epochs"), [(20, 10, 2), (20, 11, 3), (23, 10, 2), (20, 1, 1), (3, 5, 5)]
)
def test_a_length_in_steps_takes_whole_epochs(images: int, steps: int, epochs: int) -> None:
    settings = (f"schedule.steps={steps}", "train.batch_size=4", "schedule.lr_warmup_steps=0")
    configs: list[DenseConfig] = [segment(*settings), detect(*settings)]
    for config in configs:
        assert in_steps(config, images).schedule.epochs == epochs
        assert in_steps(config, images).schedule.steps == steps


def test_a_length_in_epochs_stays() -> None:
    config = segment("schedule.epochs=7")
    assert in_steps(config, 100) is config
