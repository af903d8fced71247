import json

import pytest

from attmask.old_log import in_todays_keys

STEP = """{"step": 40, "epoch": 1.0, "loss/total": 5.25, "loss/cls": 3.0, "loss/patch": 2.25, \
"health/hidden": 0.125, "health/teacher_entropy": 0.5, "health/prototypes_used": 61.5, \
"schedule/lr": 0.0005, "schedule/weight_decay": 0.04, "schedule/momentum": 0.996, \
"schedule/cls_temperature": 0.04, "schedule/patch_temperature": 0.05, \
"speed/images_per_second": 32.5, "speed/waiting_share": 0.25, "data/unreadable": 0.0}"""
EVALUATION = """{"step": 40, "epoch": 1.0, "knn/top1": 31.5, "knn/top5": 80.0, \
"object/attention": 0.375, "object/area": 0.25, "object/lift": 1.5, "object/images": 20.0, \
"object/hidden_high": 0.5, "object/patches_high": null, "quality/rank": 11.5, \
"quality/alignment": 0.25, "quality/uniformity": -1.5}"""


def test_a_step_of_an_old_log_has_todays_keys_and_shares_in_per_cent() -> None:
    assert in_todays_keys(json.loads(STEP)) == {
        "step": 40,
        "epoch": 1,
        "loss.total": 5.25,
        "loss.cls": 3.0,
        "loss.patch": 2.25,
        "health.hidden": 12.5,
        "health.teacher_entropy": 0.5,
        "health.prototypes_used": 61.5,
        "schedule.lr": 0.0005,
        "schedule.weight_decay": 0.04,
        "schedule.momentum": 0.996,
        "schedule.cls_temperature": 0.04,
        "schedule.patch_temperature": 0.05,
        "speed.images_per_second": 32.5,
        "speed.waiting": 25,
        "data.unreadable": 0,
    }


def test_an_evaluation_of_an_old_log_has_the_keys_and_units_of_the_cards() -> None:
    assert in_todays_keys(json.loads(EVALUATION)) == {
        "step": 40,
        "epoch": 1,
        "knn.top1": 31.5,
        "knn.top5": 80.0,
        "objects.attention": 37.5,
        "objects.area": 25.0,
        "objects.lift": 1.5,
        "objects.images": 20,
        "objects.hidden_high": 50.0,
        "objects.patches_high": None,
        "label_free.rank": 11.5,
        "label_free.alignment": 0.25,
        "label_free.uniformity": -1.5,
    }


@pytest.mark.parametrize("line", [STEP, EVALUATION])
def test_a_log_of_today_stays_as_it_is(line: str) -> None:
    today = in_todays_keys(json.loads(line))
    assert in_todays_keys(today) == today
