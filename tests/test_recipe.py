"""Every recipe loads, says where it comes from, and has the settings that the paper states."""

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.finetuning.config import FinetuneConfig
from attmask.kinds import KINDS, TUNED
from attmask.overrides import describe
from attmask.recipe import Recipe, read_recipe, recipe_among, recipe_for, recipes
from attmask.run_config import differences, from_yaml, override, to_yaml
from attmask.settings import Config

SMALL = ["adapt", "cpu", "demo", "small", "tiny"]


class Row(NamedTuple):
    """What appendix B and the tables say of a row."""

    strategy: str
    per_class: int | None
    crops: int
    split: float
    prototypes: int
    weight: float
    momentum: float
    knn: float
    epochs: int = 100
    batch: int = 240


PAPER = {
    "ibot-block": Row("block", 260, 6, 0.25, 8192, 1, 0.99, 46.7),
    "ibot-random75": Row("random", 260, 6, 0.25, 8192, 1, 0.99, 47.3),
    "ibot-random": Row("random", 260, 6, 0.25, 8192, 1, 0.99, 47.8),
    "ibot-low": Row("low", 260, 6, 0.25, 8192, 1, 0.99, 44.0),
    "ibot-hint": Row("hint", 260, 6, 0.25, 8192, 1, 0.99, 49.5),
    "ibot-high": Row("high", 260, 6, 0.25, 8192, 1, 0.99, 49.7),
    "ibot-block-5pct": Row("block", 65, 6, 0.25, 8192, 1, 0.99, 15.7),
    "ibot-block-10pct": Row("block", 130, 6, 0.25, 8192, 1, 0.99, 31.9),
    "ibot-high-5pct": Row("high", 65, 6, 0.25, 8192, 1, 0.99, 17.5),
    "ibot-high-10pct": Row("high", 130, 6, 0.25, 8192, 1, 0.99, 33.8),
    "dino": Row("none", 260, 6, 0.4, 65536, 0, 0.99, 43.0),
    "dino-random": Row("random", 260, 6, 0.4, 65536, 0, 0.99, 43.4),
    "dino-low": Row("low", 260, 6, 0.4, 65536, 0, 0.99, 42.7),
    "dino-hint": Row("hint", 260, 6, 0.4, 65536, 0, 0.99, 43.6),
    "dino-high": Row("high", 260, 6, 0.4, 65536, 0, 0.99, 43.5),
    "dino-in1k-100ep": Row("none", None, 10, 0.4, 65536, 0, 0.996, 70.9),
    "ibot-block-in1k-100ep": Row("block", None, 10, 0.25, 8192, 1, 0.996, 71.5),
    "ibot-high-in1k-100ep": Row("high", None, 10, 0.25, 8192, 1, 0.996, 72.5),
    "ibot-hint-in1k-100ep": Row("hint", None, 10, 0.25, 8192, 1, 0.996, 72.8),
    "ibot-block-in1k-300ep": Row("block", None, 10, 0.32, 8192, 1, 0.996, 74.6, 300, 800),
    "ibot-high-in1k-300ep": Row("high", None, 10, 0.32, 8192, 1, 0.996, 75.0, 300, 800),
}

# What the rows differ in; the test of `Row` compares these.
VARIED = {
    "data.per_class",
    "head.prototypes",
    "loss.patch_weight",
    "masking.ratio",
    "masking.strategy",
    "schedule.epochs",
    "schedule.momentum",
    "train.batch_size",
    "views.local_crops",
    "views.split_scale",
}

# All else that changes a result: what appendix B and the reference implementation set alike for
# all rows of the paper, with our seed and number format.
ALIKE = {
    "data.bits": "null",
    "data.max_megapixels": "180.0",
    "data.order": "shuffled",
    "data.percent": "null",
    "views.colours_on": "workers",
    "init": "null",
    "adapt.backbone_lr": "1.0",
    "adapt.blocks": "null",
    "adapt.layer_decay": "1.0",
    "adapt.lora_alpha": "16.0",
    "adapt.lora_mlp": "false",
    "adapt.lora_rank": "null",
    "backbone.name": "vit_small_patch16_224",
    "backbone.patch_size": "16",
    "backbone.width": "null",
    "backbone.depth": "null",
    "backbone.heads": "null",
    "backbone.registers": "0",
    "backbone.layer_scale": "null",
    "backbone.drop_path": "0.1",
    "backbone.init_std": "0.02",
    "backbone.positions": "reference",
    "backbone.pretrained": "false",
    "data.channels": "3",
    "data.mean": "[0.485, 0.456, 0.406]",
    "data.std": "[0.229, 0.224, 0.225]",
    "head.bottleneck": "256",
    "head.hidden": "2048",
    "head.layers": "3",
    "head.shared": "true",
    "loss.centre_momentum": "0.9",
    "loss.centring": "mean",
    "loss.student_temperature": "0.1",
    "masking.layer": "null",
    "masking.per_image": "false",
    "masking.probability": "0.5",
    "masking.show_max": "0.1",
    "optim.betas": "[0.9, 0.999]",
    "optim.clip": "3.0",
    "schedule.cls_temperature": "[0.04, 0.07]",
    "schedule.cls_temperature_warmup_epochs": "30",
    "schedule.backbone_warmup_epochs": "0.0",
    "schedule.freeze_backbone_epochs": "0",
    "schedule.freeze_last_layer_epochs": "1",
    "schedule.lr": "0.0005",
    "schedule.lr_final": "1e-06",
    "schedule.lr_warmup_epochs": "10.0",
    "schedule.momentum_final": "1.0",
    "schedule.patch_temperature": "[0.04, 0.07]",
    "schedule.patch_temperature_warmup_epochs": "30",
    "schedule.weight_decay": "0.04",
    "schedule.weight_decay_final": "0.4",
    "seed": "0",
    "train.precision": "auto",
    "views.aspect": "[0.75, 1.3333333333333333]",
    "views.blur_probabilities": "[1.0, 0.1, 0.5]",
    "views.blur_sigma": "[0.1, 2.0]",
    "views.brightness": "0.4",
    "views.contrast": "0.4",
    "views.flip_probability": "0.5",
    "views.global_size": "224",
    "views.grey_probability": "0.2",
    "views.hue": "0.1",
    "views.jitter_probability": "0.8",
    "views.local_scale_min": "0.05",
    "views.local_size": "96",
    "views.saturation": "0.2",
    "views.solarise_probability": "0.2",
}


def result_settings(model: type[Config] = PretrainConfig, prefix: str = "") -> Iterator[str]:
    """The dotted names of all settings that change the result of a run."""
    for name, field in model.model_fields.items():
        extra = field.json_schema_extra
        assert isinstance(extra, dict)
        if isinstance(field.annotation, type) and issubclass(field.annotation, Config):
            yield from result_settings(field.annotation, f"{prefix}{name}.")
        elif not extra["operational"]:
            yield prefix + name


@pytest.fixture(scope="module", params=recipes())
def recipe(request: pytest.FixtureRequest) -> Recipe[PretrainConfig]:
    return read_recipe(request.param)


@pytest.fixture(params=sorted(PAPER))
def published(request: pytest.FixtureRequest) -> Recipe[PretrainConfig]:
    return read_recipe(request.param)


def test_there_is_a_recipe_for_every_row_and_five_of_our_own() -> None:
    assert recipes() == sorted([*PAPER, *SMALL])


def test_a_recipe_starts_with_a_comment_and_says_what_it_is(recipe: Recipe[PretrainConfig]) -> None:
    text = (resources.files("attmask") / "recipes" / f"{recipe.name}.yaml").read_text()
    assert text.startswith("# Not in the paper: " if recipe.name in SMALL else "# Table")
    assert recipe.about.summary
    assert recipe.name in recipe.about.command
    assert recipe.about.command.startswith("attmask ")


def test_a_recipe_states_its_time_factor(recipe: Recipe[PretrainConfig]) -> None:
    views = recipe.config.views
    gamma = 2 + views.local_crops * (views.local_size / views.global_size) ** 2
    assert recipe.about.time_factor == round(gamma, 2)


def test_every_ablation_can_be_applied_and_has_its_figure(recipe: Recipe[PretrainConfig]) -> None:
    for ablation in recipe.about.ablations:
        override(recipe.config, ablation.overrides)
        assert ablation.note.startswith("Table")
        assert ablation.result.keys() == {"knn"}


def test_a_recipe_survives_the_way_through_a_file(
    recipe: Recipe[PretrainConfig], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("recipe") / "config.yaml"
    path.write_text(to_yaml(recipe.config))
    assert from_yaml(path, PretrainConfig) == recipe.config


def test_a_row_has_the_papers_settings_and_figure(published: Recipe[PretrainConfig]) -> None:
    config, about = published.config, published.about
    assert about.paper is not None
    assert PAPER[published.name] == Row(
        strategy=config.masking.strategy,
        per_class=config.data.per_class,
        crops=config.views.local_crops,
        split=config.views.split_scale,
        prototypes=config.head.prototypes,
        weight=config.loss.patch_weight,
        momentum=config.schedule.momentum,
        knn=about.paper.figures["knn"],
        epochs=config.schedule.epochs,
        batch=config.train.batch_size,
    )
    assert config.masking.ratio == ((0.75, 0.75) if "75" in published.name else (0.1, 0.5))


def test_what_the_paper_sets_alike_is_alike_in_all_its_rows(
    published: Recipe[PretrainConfig],
) -> None:
    values = {line.key: line.value for line in describe(published.config)}
    assert {key: values[key] for key in result_settings() if key not in VARIED} == ALIKE


def test_the_base_of_the_papers_recipes_leaves_nothing_to_a_default() -> None:
    text = (resources.files("attmask") / "recipes" / "ibot-high.yaml").read_text()
    groups = yaml.safe_load(text)
    del groups["about"]
    written = {f"{group}.{name}" for group, settings in groups.items() for name in settings}
    assert written == set(result_settings()) - {"seed", "init", "train.precision"}


def test_the_papers_time_factors_are_3_10_and_3_84(published: Recipe[PretrainConfig]) -> None:
    assert published.about.time_factor == (3.84 if "in1k" in published.name else 3.1)


def test_the_ablations_are_those_of_the_paper() -> None:
    figures = {
        name: [ablation.result["knn"] for ablation in read_recipe(name).about.ablations]
        for name in ("ibot-high", "ibot-block", "ibot-random")
    }
    layer, probability = [48.1, 48.1, 49.8, 49.7], [43.4, 47.3, 49.4, 49.4, 44.2]
    ratio, weight = [49.5, 49.7, 48.5, 49.1], [43.5, 47.3, 49.7, 48.3]
    assert figures["ibot-high"] == layer + probability + ratio + weight
    assert figures["ibot-block"] == [46.5, 46.7, 47.1, 46.9, 43.4, 46.5, 46.7, 41.9]
    assert figures["ibot-random"] == [47.6, 47.8, 47.8, 48.2]


def test_the_ablation_of_the_probability_uses_a_batch_of_180() -> None:
    recipe = read_recipe("ibot-high")
    batches = {
        override(recipe.config, ablation.overrides).train.batch_size
        for ablation in recipe.about.ablations
        if "Table 9b" in ablation.note
    }
    assert batches == {180}


def test_a_recipe_of_another_command_is_named_as_such() -> None:
    with pytest.raises(UserError, match="own is a recipe of attmask finetune"):
        read_recipe("own")
    with pytest.raises(UserError, match="tiny is a recipe of attmask pretrain"):
        recipe_for(FinetuneConfig, "tiny")


def test_every_kind_of_fine_tuning_has_recipes_that_state_their_kind() -> None:
    kinds = {name: recipe_among(KINDS, name).config.KIND for k in KINDS for name in recipes(k)}
    assert kinds["own"] == "finetune"
    assert kinds["segment-ade20k-ibot"] == "segment"
    assert kinds["detect-coco"] == "detect"
    assert kinds["tiny"] == "pretrain"


def test_the_kind_of_a_file_is_stated_or_that_of_what_it_extends(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: segment-own\nseed: 3\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    (tmp_path / "c.yaml").write_text("kind: detect\n")
    (tmp_path / "d.yaml").write_text("seed: 3\n")
    found = [recipe_among(TUNED, tmp_path / f"{name}.yaml").config for name in "abcd"]
    assert [config.KIND for config in found] == ["segment", "segment", "detect", "finetune"]
    assert [config.seed for config in found] == [3, 3, 0, 3]


def test_files_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(UserError, match="extends itself"):
        recipe_among(TUNED, tmp_path / "a.yaml")


def test_an_unknown_name_is_answered_with_recipes_of_all_kinds() -> None:
    with pytest.raises(UserError, match="segment-own"):
        recipe_among(TUNED, "segment-owm")
    with pytest.raises(UserError, match="tiny is a recipe of attmask pretrain"):
        recipe_among(TUNED, "tiny")


def test_the_two_recipes_for_ade20k_differ_where_the_sources_disagree() -> None:
    paper, ibot = (recipe_among(TUNED, f"segment-ade20k{end}").config for end in ("", "-ibot"))
    changed = {line.split(":")[0] for line in differences(paper, ibot)}
    assert changed == {"schedule.lr", "optim.layer_decay", "head.norm_levels"}
