"""Advice is a config that runs, with a reason for every setting."""

import math
import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attmask.audit.advice import Findings, Machine, Plan, images_used, plan
from attmask.audit.summary import PixelStatistics
from attmask.cli import parse
from attmask.data.config import IMAGENET_MEAN, IMAGENET_STD
from attmask.recipe import load_recipe
from attmask.run_config import override

CPU, GPU = Machine("cpu", 4, 3), Machine("cuda", 16, 15)
PHOTOS = PixelStatistics(3, IMAGENET_MEAN, IMAGENET_STD)


def advise(
    images: int = 10_000,
    side: int = 300,
    pixels: PixelStatistics = PHOTOS,
    machine: Machine = CPU,
    recipe: str | None = None,
) -> Plan:
    return plan(Findings(images, side, pixels), machine, recipe)


@settings(max_examples=40)
@given(
    images=st.integers(1, 3_000_000),
    side=st.integers(1, 20_000),
    channels=st.integers(1, 14),
    level=st.floats(0, 1),
    std=st.floats(0, 0.5),
    machine=st.sampled_from([CPU, GPU]),
    recipe=st.sampled_from([None, "tiny", "dino", "ibot-high"]),
)
def test_whatever_the_images_the_command_gives_the_config_that_was_advised(
    images: int,
    side: int,
    channels: int,
    level: float,
    std: float,
    machine: Machine,
    recipe: str | None,
) -> None:
    pixels = PixelStatistics(channels, (level,) * channels, (std,) * channels)
    found = advise(images, side, pixels, machine, recipe)
    typed = parse(shlex.split(found.command("some folder"))[1:])
    assert str(typed.data) == "some folder"
    assert override(load_recipe(typed.recipe), typed.overrides) == found.config
    config = found.config
    assert config.data.channels == channels
    assert config.train.batch_size <= images
    assert config.views.local_size <= config.views.global_size
    steps = config.schedule.epochs * max(1, images // config.train.batch_size)
    assert steps >= 3000 or recipe is not None or images < 4
    assert all(line.reason for line in found.settings)


def test_photographs_on_a_cpu_take_the_recipe_as_it_is() -> None:
    found = advise()
    assert found.recipe == "cpu"
    assert found.config == load_recipe("cpu")
    assert found.command("x") == "attmask pretrain x --recipe cpu"


@pytest.mark.parametrize(
    ("images", "recipe"), [(5_000, "small"), (99_999, "small"), (100_000, "ibot-high-in1k-100ep")]
)
def test_beside_a_gpu_the_recipe_goes_by_the_number_of_images(images: int, recipe: str) -> None:
    assert advise(images, machine=GPU).recipe == recipe


@settings(max_examples=40)
@given(st.integers(12, 1000))
def test_views_are_never_larger_than_half_of_the_pictures_and_have_patches_to_hide(
    side: int,
) -> None:
    config = advise(side=side, machine=GPU).config
    assert config.views.global_size <= side
    assert config.views.global_size // config.backbone.patch >= 6


def test_small_pictures_get_small_patches() -> None:
    config = advise(side=32, machine=GPU).config
    assert (config.views.global_size, config.backbone.patch) == (32, 4)


def test_few_images_get_smaller_batches_and_more_epochs() -> None:
    config = advise(images=100).config
    assert config.train.batch_size == 16
    assert config.schedule.epochs == math.ceil(3000 / (100 // 16))


def test_dark_pictures_get_their_own_mean_and_photographs_do_not() -> None:
    dark = PixelStatistics(3, (0.1, 0.12, 0.1), (0.05, 0.06, 0.05))
    assert advise(pixels=dark).config.data.mean == dark.mean
    near = PixelStatistics(3, (0.45, 0.44, 0.43), (0.27, 0.26, 0.28))
    assert advise(pixels=near).config.data == load_recipe("cpu").data


def test_pictures_of_one_value_get_a_std_that_can_divide() -> None:
    flat = PixelStatistics(1, (0.0,), (0.0,))
    assert min(advise(pixels=flat).config.data.std) > 0


def test_part_of_each_class_is_counted_as_the_trainer_takes_it() -> None:
    found = Findings(1000, 300, PHOTOS, (900, 100))
    config = load_recipe("cpu")
    assert images_used(found, config) == 1000
    assert images_used(found, override(config, ["data.per_class=200"])) == 300
    assert images_used(found, override(config, ["data.percent=10"])) == 100


def test_advice_for_one_image_is_in_the_singular() -> None:
    reasons = " ".join(
        line.reason for line in advise(images=1, machine=Machine("cpu", 1, 0)).settings
    )
    assert "1 image is only" in reasons
    assert "of 1 core one is left" in reasons
    assert not re.search(r"(?<![\d,.])1 (images|steps|epochs|cores)", reasons)
