"""Settings that make a run fit are tried, not guessed."""

import pytest

from attmask.config import PretrainConfig
from attmask.planning.answers import find_answers
from attmask.planning.memory import Memory, peak_memory
from attmask.planning.record import Answer
from attmask.recipe import load_recipe
from attmask.run_config import override


def measure(config: PretrainConfig, processes: int) -> Memory:
    return peak_memory(config, processes=processes, precision="fp32", fused=True)


def answers(config: PretrainConfig, usable: float) -> tuple[Answer, ...]:
    """Those of a run that may take a part of the activations that it has."""
    memory = measure(config, 1)
    allowed = memory.fixed + int(usable * memory.activations)
    return find_answers(config, 1, memory, allowed, measure)


def by_rule(config: PretrainConfig, processes: int) -> Memory:
    """A round number for each setting, in place of a rehearsal."""
    parts = 2 if config.train.sharding == "fsdp" else 1
    images = config.train.batch_size // processes // config.train.accumulate
    each = 50 if config.train.recompute else 100
    return Memory(400 // parts, 200, 400 // parts, each * images)


def by_rule_of(usable: int, processes: int, *settings: str) -> list[tuple[str, int, bool]]:
    """The answers where memory follows that rule."""
    config = override(load_recipe("tiny"), settings)
    found = find_answers(config, processes, by_rule(config, processes), usable, by_rule)
    return [(each.setting, each.peak_bytes, each.fits) for each in found]


@pytest.mark.slow
def test_several_processes_may_shard_the_networks() -> None:
    assert by_rule_of(1400, 2) == [
        ("train.recompute=true", 1400, True),
        ("train.sharding=fsdp", 1400, True),
        ("train.accumulate=4", 1200, True),
        ("--processes 8", 1200, True),
    ]
    assert "train.sharding=fsdp" not in str(by_rule_of(1400, 1))
    assert "train.sharding=fsdp" not in str(by_rule_of(1000, 2, "train.sharding=fsdp"))


def test_what_is_not_enough_comes_last_and_is_tried_together() -> None:
    found = by_rule_of(700, 2)
    together = "train.recompute=true train.sharding=fsdp train.accumulate=8"
    assert found[0] == (together, 650, True)
    assert [fits for _, _, fits in found[1:]] == [False] * 4


def test_a_setting_that_saves_nothing_is_no_answer() -> None:
    config = load_recipe("tiny")
    assert find_answers(config, 2, Memory(1, 0, 0, 0), 0, lambda *_: Memory(1, 0, 0, 0)) == ()


@pytest.mark.slow
def test_settings_that_fit_come_first_with_the_memory_they_need() -> None:
    found = answers(load_recipe("tiny"), 0.64)
    assert [each.setting for each in found] == [
        "train.accumulate=2",
        "--processes 2",
        "train.recompute=true",
    ]
    assert [each.fits for each in found] == [True, True, False]
    config = override(load_recipe("tiny"), ["train.accumulate=2"])
    assert found[0].peak_bytes == measure(config, 1).total


@pytest.mark.slow
def test_where_no_setting_is_enough_they_are_tried_together() -> None:
    found = answers(load_recipe("tiny"), 0.05)
    assert "train.recompute=true train.accumulate=16" in [each.setting for each in found]


@pytest.mark.slow
def test_a_batch_that_sinkhorn_needs_at_once_is_not_split() -> None:
    config = override(load_recipe("tiny"), ["loss.centring=sinkhorn"])
    settings = [each.setting for each in answers(config, 0.6)]
    assert settings
    assert not any("accumulate" in setting for setting in settings)
