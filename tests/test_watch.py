"""The watch: each rule on made-up metrics, when it is told, how often, and when it is not."""

import math
import re
from collections.abc import Callable, Iterable

import pytest

from attmask.collapse import ATTENTION_GRACE_STEPS, Kind, rules, watch_over
from attmask.config import PretrainConfig
from attmask.overrides import fields_of
from attmask.recipe import load_recipe, recipes
from attmask.run_config import differences, override
from attmask.watch import GRACE_STEPS, WINDOW_RECORDS, WINDOW_STEPS, Finding, Watch

DEMO = load_recipe("demo")
LN_K = math.log(DEMO.head.prototypes)
HEALTHY = {
    "loss.cls": 0.9 * LN_K,
    "health.teacher_entropy": 0.5 * LN_K,
    "health.prototypes_used": 200.0,
    "health.kl": 0.4 * LN_K,
    "health.feature_rank": 20.0,
    "health.feature_spread": 0.4,
    "health.attention_entropy": 0.97,
    "health.attention_outliers": 0.0,
    "health.view_contrast": 0.5,
}
ILL: dict[Kind, dict[str, float]] = {
    "blank_images": {"health.view_contrast": 0.001},
    "flat_features": {"health.feature_spread": 0.01},
    "one_prototype": {"health.prototypes_used": 1.2},
    "uniform_targets": {"health.teacher_entropy": 0.999 * LN_K},
    "sharp_targets": {"health.teacher_entropy": 0.01},
    "same_targets": {"health.kl": 0.001},
    "diverging": {"loss.cls": 1.5 * LN_K},
    "uniform_attention": {"health.attention_entropy": 0.9999},
    "attention_outliers": {"health.attention_outliers": 70.0},
}
KINDS = pytest.mark.parametrize("kind", ILL)
ANY_EPOCH = 1000


def ill(*kinds: Kind) -> dict[str, float]:
    """The metrics of a record with these collapses."""
    values = dict(HEALTHY)
    for kind in kinds:
        values |= ILL[kind]
    return values


def told(
    watch: Watch,
    steps: Iterable[int],
    values: Callable[[int], dict[str, float]],
    epoch: int = ANY_EPOCH,
) -> list[Finding]:
    """What is told in the records of some steps."""
    return [found for step in steps for found in watch.see(step, epoch, values(step))]


def test_every_kind_has_a_rule_and_a_case_here() -> None:
    assert [rule.kind for rule in rules(DEMO)] == list(ILL)


@pytest.mark.parametrize("every", [1, 10, 100])
@KINDS
def test_a_collapse_is_told_once_a_window_after_the_grace_steps(kind: Kind, every: int) -> None:
    watch = watch_over(DEMO)
    (found,) = told(watch, range(0, 2000, every), lambda _: ill(kind))
    assert found.kind == kind
    grace = ATTENTION_GRACE_STEPS if kind == "uniform_attention" else GRACE_STEPS
    records = -(-grace // every) + WINDOW_RECORDS - 1
    assert found.step == max(grace + WINDOW_STEPS, every * records)
    assert watch.findings == (found,)


@KINDS
def test_a_collapse_that_begins_later_is_told_within_a_window(kind: Kind) -> None:
    watch = watch_over(DEMO)
    (found,) = told(watch, range(0, 2000, 10), lambda step: ill(kind) if step > 1000 else HEALTHY)
    # The last healthy record may be the one of ten that does not count.
    assert 1000 + 0.9 * WINDOW_STEPS <= found.step <= 1010 + WINDOW_STEPS


@pytest.mark.parametrize("name", recipes())
def test_a_healthy_training_is_told_nothing_whatever_its_recipe(name: str) -> None:
    config = load_recipe(name)
    scale = math.log(config.head.prototypes) / LN_K
    values = {
        key: value * scale if key in ("loss.cls", "health.kl", "health.teacher_entropy") else value
        for key, value in HEALTHY.items()
    }
    watch = watch_over(config)
    assert told(watch, range(0, 3000, 10), lambda _: values) == []
    assert watch.findings == ()


@pytest.mark.parametrize(
    "is_odd",
    [
        lambda step: step % 100 == 0,
        lambda step: step % 20 == 0,
        lambda step: 500 <= step < 500 + 0.7 * WINDOW_STEPS,
        lambda step: step < GRACE_STEPS,
    ],
    ids=["one of ten", "every other", "a short spell", "at the start"],
)
@KINDS
def test_odd_batches_and_short_spells_are_not_told(
    kind: Kind, is_odd: Callable[[int], bool]
) -> None:
    found = told(
        watch_over(DEMO), range(0, 2000, 10), lambda step: ill(kind) if is_odd(step) else HEALTHY
    )
    assert found == []


@KINDS
def test_one_better_batch_does_not_hide_a_collapse(kind: Kind) -> None:
    watch = watch_over(DEMO)
    assert told(watch, range(0, 1000, 10), lambda s: HEALTHY if s == 150 else ill(kind))
    assert [found.kind for found in watch.findings] == [kind]


@KINDS
def test_a_collapse_is_told_again_only_after_it_was_over_for_a_window(kind: Kind) -> None:
    def comes_and_goes(step: int) -> dict[str, float]:
        return HEALTHY if 500 <= step < 550 or 1000 <= step < 1200 else ill(kind)

    watch = watch_over(DEMO)
    first, second = told(watch, range(0, 2000, 10), comes_and_goes)
    grace = ATTENTION_GRACE_STEPS if kind == "uniform_attention" else GRACE_STEPS
    assert first.step == grace + WINDOW_STEPS
    assert second.step > 1200 + 0.8 * WINDOW_STEPS
    watch = watch_over(DEMO)
    told(watch, range(0, 1200, 10), comes_and_goes)
    assert watch.findings == (), "it was over"


def test_few_records_make_a_window_longer() -> None:
    watch = watch_over(DEMO)
    (found,) = told(watch, range(0, 20_000, 1000), lambda _: ill("diverging"))
    assert found.step == 1000 * WINDOW_RECORDS


# Grace


@pytest.mark.parametrize("kind", sorted(set(ILL) - {"blank_images", "one_prototype"}))
def test_the_warm_up_of_the_learning_rate_does_not_count(kind: Kind) -> None:
    config = override(DEMO, ["schedule.lr_warmup_epochs=3.5", "schedule.epochs=20"])
    watch = watch_over(config)
    for step in range(0, 3000, 10):
        found = watch.see(step, step // 300, ill(kind))
        if found:
            break
    assert step == 4 * 300 + WINDOW_STEPS


@pytest.mark.parametrize("kind", ["blank_images", "one_prototype"])
def test_what_no_start_excuses_is_told_in_the_warm_up(kind: Kind) -> None:
    (found,) = told(
        watch_over(load_recipe("ibot-high")), range(0, 500, 10), lambda _: ill(kind), epoch=0
    )
    assert found.step == GRACE_STEPS + WINDOW_STEPS


# The reason and not what follows from it


FOLLOWS: dict[Kind, set[Kind]] = {
    "blank_images": set(ILL) - {"blank_images"},
    "flat_features": {"uniform_targets", "same_targets"},
    "one_prototype": {"sharp_targets", "same_targets"},
    "uniform_targets": {"same_targets"},
}


@pytest.mark.parametrize(
    ("cause", "other"),
    [(cause, other) for cause, them in FOLLOWS.items() for other in sorted(them)],
)
def test_a_cause_is_told_and_not_its_consequences(cause: Kind, other: Kind) -> None:
    watch = watch_over(DEMO)
    (found,) = told(watch, range(0, 500, 10), lambda _: ill(other, cause))
    assert found.kind == cause
    assert watch.findings == (found,)


def test_a_consequence_that_outlasts_its_cause_is_told() -> None:
    causes: tuple[Kind, ...] = ("uniform_targets", "flat_features")
    watch = watch_over(DEMO)
    found = told(watch, range(0, 1000, 10), lambda step: ill(*causes[: 1 + (step < 500)]))
    assert [each.kind for each in found] == ["flat_features", "uniform_targets"]


def test_a_consequence_that_was_told_before_its_cause_is_not_told_twice() -> None:
    kinds: tuple[Kind, ...] = ("uniform_targets", "flat_features")
    watch = watch_over(DEMO)
    found = told(watch, range(0, 2000, 10), lambda step: ill(*kinds[: 1 + (500 <= step < 1000)]))
    assert [each.kind for each in found] == ["uniform_targets", "flat_features"]
    assert [each.kind for each in watch.findings] == ["uniform_targets"]


def test_two_collapses_at_once_are_both_told() -> None:
    found = told(
        watch_over(DEMO), range(0, 500, 10), lambda _: ill("diverging", "attention_outliers")
    )
    assert [each.kind for each in found] == ["diverging", "attention_outliers"]


# What is asked of a run


@pytest.mark.parametrize("strategy", ["random", "block"])
def test_attention_is_not_watched_where_masks_do_not_follow_it(strategy: str) -> None:
    watch = watch_over(override(DEMO, [f"masking.strategy={strategy}"]))
    kinds: tuple[Kind, ...] = ("uniform_attention", "attention_outliers")
    assert told(watch, range(0, 1000, 10), lambda _: ill(*kinds)) == []


@pytest.mark.parametrize("images", [1, 2, 3])
def test_a_batch_of_few_images_may_use_few_prototypes(images: int) -> None:
    watch = watch_over(override(DEMO, [f"train.batch_size={images}"]))
    assert told(watch, range(0, 1000, 10), lambda _: ill("one_prototype")) == []


def test_prototypes_are_counted_in_a_micro_batch() -> None:
    config = override(DEMO, ["loss.centring=mean", "train.batch_size=64"])
    values = {**HEALTHY, "health.prototypes_used": 3.0}
    assert told(watch_over(config), range(0, 500, 10), lambda _: values)
    split = watch_over(override(config, ["train.accumulate=8"]))
    assert told(split, range(0, 500, 10), lambda _: values) == []


def test_records_of_evaluations_and_of_runs_without_these_metrics_are_passed_over() -> None:
    watch = watch_over(DEMO)
    assert told(watch, range(0, 1000, 10), lambda _: {"knn.top1": 50.0}) == []
    for step in range(0, 1000, 10):
        found = watch.see(step, ANY_EPOCH, ill("diverging"))
        assert watch.see(step, ANY_EPOCH, {"knn.top1": 50.0}) == ()
        if found:
            break
    assert step == GRACE_STEPS + WINDOW_STEPS


@KINDS
def test_numbers_that_are_not_finite_are_passed_over(kind: Kind) -> None:
    broken = dict.fromkeys(ILL[kind], math.nan)
    watch = watch_over(DEMO)
    assert told(watch, range(0, 1000, 10), lambda _: {**HEALTHY, **broken}) == []


# What is told


@pytest.mark.parametrize(
    "config",
    [
        DEMO,
        load_recipe("ibot-high"),
        override(load_recipe("ibot-high"), ["masking.strategy=hint", "masking.layer=6"]),
    ],
)
@KINDS
def test_a_line_names_settings_that_exist_with_their_present_values(
    config: PretrainConfig, kind: Kind
) -> None:
    rule = next(rule for rule in rules(config) if rule.kind == kind)
    line = rule.tell(ill(kind))
    assert "\n" not in line
    keys = {key for key, _ in fields_of(PretrainConfig)}
    named = set(re.findall(r"\b[a-z]+\.[a-z_]+[a-z]\b", line))
    assert named
    assert named <= keys
    assert re.search(r"\(now [^)]+\)", line)
    assert any(f"{value:.{digits}f}" in line for value in ILL[kind].values() for digits in range(6))


def test_a_line_reads_like_this() -> None:
    (found,) = told(watch_over(DEMO), range(0, 300, 10), lambda _: ill("uniform_targets"))
    assert found.text == (
        "the teacher's targets are uniform, so they say nothing about an image: their entropy is "
        "5.540 of at most 5.545 nats; lower schedule.cls_temperature (now [0.01, 0.01])"
    )


def test_the_watch_may_be_turned_off_in_a_run_that_is_resumed() -> None:
    assert differences(DEMO, override(DEMO, ["monitor.watch=false"])) == []
