"""A plan as text: the verdict, the numbers and every assumption."""

import dataclasses

from attmask.planning.record import Answer, RunPlan
from attmask.planning.table import render


def words(plan: RunPlan) -> str:
    return " ".join(render(plan).split())


def test_a_run_that_fits_says_how_much_room_is_left(plan: RunPlan) -> None:
    assert "fits 0.00 GB of 80 GB; 72.0 GB of the usable 72.0 GB stay free" in words(plan)
    assert "tiny on 2 x H100 80GB, 16 images a step in bf16" in words(plan)


def test_every_assumption_is_printed_within_the_width(plan: RunPlan) -> None:
    text = words(plan)
    assert len(plan.assumptions) >= 5
    assert [said for said in plan.assumptions if said not in text] == []
    assert max(map(len, render(plan, width=80).splitlines())) <= 80


def test_a_run_that_does_not_fit_names_the_settings_that_do(plan: RunPlan) -> None:
    answers = (
        Answer("train.accumulate=2", 500_000_000, True),
        Answer("train.recompute=true", 2_000_000_000, False),
    )
    text = words(dataclasses.replace(plan, usable_bytes=1_000_000, answers=answers))
    assert "does not fit" in text
    assert "train.accumulate=2 fits: 0.50 GB" in text
    assert "train.recompute=true is not enough: 2.00 GB" in text
    assert "smaller backbone" not in text


def test_where_nothing_helps_the_fixed_part_is_named(plan: RunPlan) -> None:
    text = words(dataclasses.replace(plan, usable_bytes=1))
    assert "weights, gradients and moments alone take 0.00 GB; use a smaller backbone" in text
