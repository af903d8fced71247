"""What was run, and the command that repeats it."""

import shlex
from dataclasses import replace
from pathlib import Path

from attmask.curves.run_curves import read_curves
from attmask.html_report.about import about_of, command_of, image_facts, nearest_recipe
from attmask.recipe import load_recipe
from attmask.run_config import override


def test_the_nearest_recipe_is_the_one_with_the_fewest_changes() -> None:
    config = override(load_recipe("ibot-hint"), ["seed=7", "train.workers=3"])
    name, changes = nearest_recipe(config)
    assert name == "ibot-hint"
    assert [key for key, _, _ in changes] == ["seed", "train.workers"], "the operational one last"


def test_the_command_repeats_the_run(run: Path) -> None:
    curves = read_curves(run)
    command = command_of(curves, *nearest_recipe(curves.config))
    assert command is not None
    attmask, pretrain, _, *rest = shlex.split(command)
    assert (attmask, pretrain) == ("attmask", "pretrain")
    recipe, overrides = rest[rest.index("--recipe") + 1], rest[rest.index("--out") + 2 :]
    assert override(load_recipe(recipe), overrides) == curves.config


def test_the_command_names_the_weights_that_a_run_continued_from(run: Path) -> None:
    curves = read_curves(run)
    continued = replace(curves, config=override(load_recipe("tiny"), ["init=my weights.pth"]))
    recipe, changes = nearest_recipe(continued.config)
    assert (recipe, changes) == ("tiny", []), "every run states its weights anew"
    command = command_of(continued, recipe, changes)
    assert command is not None
    assert shlex.split(command)[-1] == "init=my weights.pth"


def test_a_page_has_every_setting_and_where_it_ran(run: Path) -> None:
    curves = read_curves(run)
    about = about_of(curves, image_facts(Path("images"), {"train": 2000}, 10))
    assert about["recipe"] == "tiny"
    assert {"key": "schedule.epochs", "recipe": "2", "run": "3"} in about["changes"]
    assert len(about["config"]) > 80
    facts = {(each["group"], each["name"]): each["value"] for each in about["facts"]}
    assert facts["images", "train"] == "2,000 images"
    assert facts["hardware", "device"] == "cpu"
    assert {"torch", "python"} <= {name for group, name in facts if group == "software"}
