"""Settings that make a run fit are tried, not guessed."""

import pytest

from attmask.config import PretrainConfig, override
from attmask.planning.answers import find_answers
from attmask.planning.memory import Memory, peak_memory
from attmask.planning.record import Answer
from attmask.recipe import load_recipe


def measure(config: PretrainConfig, processes: int) -> Memory:
    return peak_memory(config, processes=processes, precision="fp32", fused=True)


def answers(config: PretrainConfig, usable: float) -> tuple[Answer, ...]:
    """Those of a run that may take a part of the activations that it has."""
    memory = measure(config, 1)
    allowed = memory.fixed + int(usable * memory.activations)
    return find_answers(config, 1, memory, allowed, measure)


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
