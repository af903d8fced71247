"""Settings come in as YAML and key=value, and what is wrong with them is one clear line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attmask.config import PretrainConfig
from attmask.errors import UserError
from attmask.overrides import describe
from attmask.recipe import load_recipe, read_recipe
from attmask.run_config import differences, from_yaml, override, to_yaml

DEFAULT = PretrainConfig()


def complaint(*assignments: str) -> str:
    with pytest.raises(UserError) as caught:
        override(DEFAULT, assignments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_overrides_set_values_written_as_yaml() -> None:
    config = override(
        DEFAULT,
        [
            "seed=3",
            "views.local_crops=2",
            "masking.ratio=[0.1,0.3]",
            "masking.strategy=random",
            "schedule.lr=1e-4",
            "optim.clip=null",
            "train.compile=true",
        ],
    )
    assert config.seed == 3
    assert config.views.local_crops == 2
    assert config.masking.ratio == (0.1, 0.3)
    assert config.masking.strategy == "random"
    assert config.schedule.lr == 1e-4
    assert config.optim.clip is None
    assert config.train.compile is True


def test_overrides_are_checked_together_not_one_by_one() -> None:
    both = override(DEFAULT, ["backbone.patch_size=14", "views.local_size=98"])
    assert (both.backbone.patch_size, both.views.local_size) == (14, 98)


def test_the_last_of_two_overrides_wins_and_the_original_stays() -> None:
    assert override(DEFAULT, ["seed=1", "seed=2"]).seed == 2
    assert PretrainConfig() == DEFAULT


@pytest.mark.parametrize(
    ("assignment", "wanted"),
    [
        ("views.local_crop=2", "did you mean views.local_crops"),
        ("local_crops=2", "did you mean views.local_crops?"),
        ("view.local_crops=2", "did you mean views.local_crops?"),
        ("masking=high", "did you mean masking.strategy"),
        ("zzz=1", "`attmask config NAME` lists them"),
    ],
)
def test_an_unknown_setting_is_answered_with_the_nearest(assignment: str, wanted: str) -> None:
    line = complaint(assignment)
    assert line.startswith(f"there is no setting '{assignment.partition('=')[0]}'; ")
    assert wanted in line


@pytest.mark.parametrize(
    ("assignments", "wanted"),
    [
        (["seed"], "'seed' is not key=value, such as schedule.epochs=50"),
        (["seed=x"], "seed=x: should be a valid integer"),
        (["seed=-1"], "seed=-1: should be greater than or equal to 0"),
        (["masking.ratio=[0.1"], "'masking.ratio=[0.1' is not YAML"),
        (["masking.ratio=0.3"], "masking.ratio=0.3: wanted 2 values"),
        (["masking.strategy=hihg"], "masking.strategy=hihg: should be 'high', 'low', 'hint'"),
        (["optim.clip=none"], "(nothing is written null)"),
        (
            ["train.device=gpu"],
            "train.device: 'gpu' is not a device; use auto, cpu, cuda or cuda:1",
        ),
        (["seed=-1", "train.batch_size=0"], "; train.batch_size=0: should be"),
    ],
)
def test_an_impossible_value_is_refused_with_the_reason(
    assignments: list[str], wanted: str
) -> None:
    assert wanted in complaint(*assignments)


@given(st.text())
def test_a_value_however_odd_is_taken_or_refused_in_one_line(text: str) -> None:
    lines = []
    try:
        override(DEFAULT, [f"seed={text}"])
    except UserError as fault:
        lines = str(fault).splitlines()
    assert len(lines) <= 1


def test_image_sizes_must_be_multiples_of_the_patch_size() -> None:
    wanted = (
        "image size 100 is not a multiple of patch size 16; use 96 or 112, or another backbone.name"
    )
    assert complaint("views.global_size=100") == f"views.global_size: {wanted}"
    assert complaint("views.local_size=100") == f"views.local_size: {wanted}"
    assert "patch size 16; use 16, or another" in complaint("views.local_size=10")
    assert complaint("backbone.patch_size=9").endswith("backbone.patch_size")
    override(DEFAULT, ["views.local_size=100", "views.local_crops=0"])  # never cut


@pytest.mark.parametrize("name", ["lr", "cls_temperature", "patch_temperature"])
def test_a_warm_up_may_not_be_longer_than_training(name: str) -> None:
    others = [
        f"schedule.{n}_warmup_epochs=0" for n in ("lr", "cls_temperature", "patch_temperature")
    ]
    key = f"schedule.{name}_warmup_epochs"
    assert complaint(*others, "schedule.epochs=5", f"{key}=6") == (
        f"{key}=6 is longer than the training of 5 epochs; use at most 5, or schedule.epochs=6"
    )
    override(DEFAULT, [*others, "schedule.epochs=5", f"{key}=5"])


def test_a_batch_must_split_into_its_micro_batches() -> None:
    assert complaint("train.accumulate=7") == (
        "train.batch_size=240 does not split into 7 micro-batches; use train.accumulate=6"
    )
    assert "use train.accumulate=8" in complaint("train.batch_size=8", "train.accumulate=9")


def test_the_layer_that_is_read_must_exist() -> None:
    assert complaint("backbone.depth=4", "masking.layer=5").startswith("masking.layer=5 is beyond")
    override(DEFAULT, ["backbone.depth=4", "masking.layer=4"])


def test_a_patch_loss_without_masks_is_refused_with_advice() -> None:
    assert "set loss.patch_weight=0 (DINO)" in complaint("masking.strategy=none")
    override(DEFAULT, ["masking.strategy=none", "loss.patch_weight=0"])
    override(DEFAULT, ["masking.probability=0"])  # a row of the paper


@pytest.mark.parametrize(
    "assignments",
    [
        ["masking.ratio=[0.5, 0.1]"],
        ["masking.ratio=[0.5, 1.1]"],
        ["masking.strategy=hint", "masking.show_max=0.2"],
    ],
)
def test_impossible_ratios_are_refused(assignments: list[str]) -> None:
    assert complaint(*assignments).startswith("masking")


def test_a_config_survives_the_way_through_a_file(tmp_path: Path) -> None:
    config = override(DEFAULT, ["optim.clip=null", "schedule.lr=1e-7", "masking.ratio=[0.3, 0.3]"])
    path = tmp_path / "config.yaml"
    path.write_text(to_yaml(config))
    assert from_yaml(path, PretrainConfig) == config
    assert "\n  ratio: [0.3, 0.3]\n" in path.read_text()


def test_every_setting_is_described_and_can_be_given_back_as_an_override() -> None:
    lines = describe(DEFAULT)
    assert len({line.key for line in lines}) == len(lines)
    assert all(line.meaning for line in lines)
    assert override(DEFAULT, [f"{line.key}={line.value}" for line in lines]) == DEFAULT
    ratio = next(line for line in lines if line.key == "masking.ratio")
    assert (ratio.value, ratio.paper) == ("[0.1, 0.5]", "[0.1, 0.5]")


def test_differences_name_what_would_change_the_result() -> None:
    changed = override(DEFAULT, ["masking.ratio=[0.1,0.3]", "seed=1"])
    assert differences(DEFAULT, DEFAULT) == []
    assert differences(DEFAULT, changed) == [
        "seed: 0 in the run, 1 given",
        "masking.ratio: (0.1, 0.5) in the run, (0.1, 0.3) given",
    ]


def test_differences_leave_out_what_does_not_change_the_result() -> None:
    operational = [
        "train.accumulate=2",
        "train.workers=3",
        "train.threads=1",
        "train.device=cpu",
        "train.compile=true",
        "checkpoint.keep=5",
        "monitor.tensorboard=false",
    ]
    assert differences(DEFAULT, override(DEFAULT, operational)) == []


def test_a_recipe_file_extends_another_group_by_group(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(
        "extends: ibot-low\nabout: {summary: base}\nmasking: {probability: 0.7}\n"
    )
    (tmp_path / "mine.yaml").write_text(
        "extends: base.yaml\nviews: {local_crops: 3}\nmasking: {layer: 11}\n"
    )
    recipe = read_recipe(tmp_path / "mine.yaml")
    assert recipe.name == "mine"
    assert recipe.about.summary == ""  # a recipe speaks for itself
    assert recipe.config.views.local_crops == 3
    assert recipe.config.views.split_scale == 0.25
    masking = recipe.config.masking
    assert (masking.strategy, masking.probability, masking.layer) == ("low", 0.7, 11)


def test_an_empty_recipe_file_is_the_default(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.touch()
    assert load_recipe(path) == DEFAULT


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (
            b"views: {local_crop: 2}",
            "no setting 'views.local_crop'; did you mean views.local_crops",
        ),
        (b"veiws: {local_crops: 2}", "there is no setting 'veiws'"),
        (b"views: 3", "views=3: should be a group of settings"),
        (b"views: [", "is not YAML"),
        (b"seed: 1\nseed: 2", "the key seed appears twice"),
        (b"- seed", "is not a list of `setting: value`"),
        (b"1: 2", "is not a list of `setting: value`"),
        (b"views: {1: 2}", "views.1"),
        (b"about: 3", "about: 3: should be a group of settings"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"extends: mine.yaml", "extends itself"),
        (b"extends: nothing.yaml", "there is no file"),
        (b"extends: ibot-hihg", "did you mean ibot-high"),
        (b"about: {sumary: x}", "there is no setting 'sumary'; did you mean summary?"),
        (b"views: {global_size: 100}", "use 96 or 112"),
    ],
)
def test_a_spoilt_recipe_file_is_one_line(tmp_path: Path, content: bytes, wanted: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        load_recipe(path)
    assert wanted in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_an_unknown_recipe_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(UserError, match=r"no recipe 'ibot-hgih'; did you mean ibot-high or"):
        load_recipe("ibot-hgih")
    with pytest.raises(UserError, match=r"no recipe 'zzz'; `attmask recipes` lists them"):
        load_recipe("zzz")
    with pytest.raises(UserError, match=r"there is no file .*zzz\.yaml"):
        load_recipe("somewhere/zzz.yaml")


@pytest.mark.parametrize(
    ("assignment", "wanted"),
    [
        ("train.timeout_minutes=1e20", "should be less than or equal to 1000000"),
        ("train.start_timeout_minutes=1e20", "should be less than or equal to 1000000"),
        ("train.batch_size=1000000007", "should be less than or equal to 1048576"),
        ("train.workers=100000", "should be less than or equal to 1024"),
        ("train.threads=100000", "should be less than or equal to 1024"),
        ("views.global_size=16000000", "should be less than or equal to 8192"),
        ("views.local_crops=1000000", "should be less than or equal to 1000"),
        ("backbone.depth=1000000000", "should be less than or equal to 200"),
        ("backbone.width=1000000000", "should be less than or equal to 32768"),
        ("head.prototypes=10000000000", "should be less than or equal to 16777216"),
        ("backbone.name=" + "x" * 101, "should have at most 100 characters"),
        ("head.layers=1000000000", "should be less than or equal to 100"),
        ("schedule.lr=1e300", "1e+300 is beyond single precision; use 0, or 1e-30 to 1e+30"),
    ],
)
def test_a_size_that_would_fill_memory_or_overflow_is_refused(assignment: str, wanted: str) -> None:
    line = complaint(assignment)
    assert line.startswith(assignment.partition("=")[0])
    assert line.endswith(wanted)


def test_settings_of_a_group_that_do_not_fit_are_named_in_full() -> None:
    assert complaint("data.mean=[0.5,0.5]").startswith("data.mean has 2 values for 3 channels")
    assert complaint("views.aspect=[2,1]").startswith("views.aspect (2.0, 1.0) must be")
    assert complaint("views.split_scale=0.01").startswith("views.local_scale_min=0.05 is above")
    assert complaint("data.percent=5", "data.per_class=5").startswith("data.per_class=5 and data.")
    line = complaint("masking.strategy=hint", "masking.show_max=0.3")
    assert line.startswith("masking.show_max 0.3 must be between 0 and")
