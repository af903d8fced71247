"""Settings of any value: one line that names the key, or a config that trains without a traceback.

The values are drawn from the config classes themselves (tests/drawn_settings.py).
"""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from attmask.config import PretrainConfig
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.data.synthetic import write_folder
from attmask.errors import UserError
from attmask.recipe import load_recipe
from attmask.run_config import override
from attmask.train import Trainer
from tests.drawn_settings import FIELDS, FIXED, assignments, hostile_values, valid_values

TINY = load_recipe("tiny")
BASE = override(
    TINY,
    [
        "train.batch_size=8",
        "schedule.epochs=20",
        "monitor.tensorboard=false",
        *(f"{key}={value}" for key, value in FIXED.items()),
    ],
)
FREE = sorted(FIELDS.keys() - FIXED.keys())
LONGEST_PROBLEM = 400

quick = settings(
    max_examples=60,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
thorough = settings(quick, max_examples=1000)


def assert_one_line(fault: UserError) -> str:
    line = str(fault)
    assert line.isprintable(), line
    assert len(line) < LONGEST_PROBLEM * (1 + line.count("; ")), line
    return line


def applied(base: PretrainConfig, given_: list[str]) -> PretrainConfig | None:
    """The config, or None where a line that names one of the keys refuses it."""
    try:
        return override(base, given_)
    except UserError as fault:
        line = assert_one_line(fault)
        keys = [assignment.partition("=")[0] for assignment in given_]
        assert any(key in line for key in keys), line
        return None


def train_two_steps(config: PretrainConfig, images: Source, run: Path) -> bool:
    """Two steps and their checkpoint; False where one line says why not."""
    try:
        trainer = Trainer(config, images, run)
        try:
            for step in range(2):
                batch = next(trainer.loader.epoch(*divmod(step, trainer.loader.steps_per_epoch)))
                views = batch.on(trainer.device).normalise(config.data.mean, config.data.std)
                trainer.learn(views, trainer.schedules.at(step))
                trainer.step += 1
            trainer.save()
            trainer.checkpoints.finish()
        finally:
            trainer.loader.close()
    except UserError as fault:
        assert_one_line(fault)
        return False
    finally:
        shutil.rmtree(run, ignore_errors=True)
    return True


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Source:
    root = tmp_path_factory.mktemp("few")
    write_folder(root, train=16, val=4, size=32, seed=0)
    return open_images(root).train


# Any value


@settings(quick, max_examples=300)
@given(assignments(sorted(FIELDS), hostile_values))
def test_any_value_is_taken_or_refused_in_one_line_that_names_the_key(given_: list[str]) -> None:
    applied(TINY, given_)


@pytest.mark.slow
@settings(thorough, max_examples=1000)
@given(assignments(sorted(FIELDS), hostile_values))
def test_any_of_many_values_is_taken_or_refused_in_one_line(given_: list[str]) -> None:
    applied(TINY, given_)


@pytest.mark.parametrize("key", sorted(FIELDS))
def test_every_setting_refuses_a_value_of_no_kind(key: str) -> None:
    assert applied(TINY, [f"{key}={{a: [[]]}}"]) is None


# Values that the types and limits allow


def test_two_steps_are_trained_of_the_config_that_all_examples_start_from(
    images: Source, tmp_path: Path
) -> None:
    assert train_two_steps(BASE, images, tmp_path / "run")


@settings(quick, max_examples=25)
@given(assignments(FREE, valid_values))
def test_a_config_that_is_accepted_trains_two_steps(
    images: Source, tmp_path_factory: pytest.TempPathFactory, given_: list[str]
) -> None:
    config = applied(BASE, given_)
    assume(config is not None)  # so that the accepted ones are counted
    assert config is not None
    train_two_steps(config, images, tmp_path_factory.getbasetemp() / "fuzzed")


@pytest.mark.slow
@thorough
@given(assignments(FREE, valid_values))
def test_each_of_a_thousand_configs_that_are_accepted_trains_two_steps(
    images: Source, tmp_path_factory: pytest.TempPathFactory, given_: list[str]
) -> None:
    config = applied(BASE, given_)
    assume(config is not None)  # so that the accepted ones are counted
    assert config is not None
    train_two_steps(config, images, tmp_path_factory.getbasetemp() / "fuzzed")
