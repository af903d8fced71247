from pathlib import Path

import pytest

from attmask.evaluation.catalog import TASKS
from attmask.evaluation.datasets.labelled import Labelled
from attmask.evaluation.task import Data, DataSet, Drawing, Measures, Procedure, Task
from attmask.metric import Metric


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_task_has_a_protocol_that_measures_and_a_data_set_that_opens(task: object) -> None:
    assert isinstance(task, Task)
    assert isinstance(task.protocol, Procedure)
    assert isinstance(task.dataset, DataSet)


def test_an_opened_data_set_names_its_sources(scenes: Path) -> None:
    opened = Labelled().open(scenes)
    assert isinstance(opened, Data)
    assert not isinstance(object(), Data)


def test_measures_are_metrics_and_need_nothing_else() -> None:
    measures = Measures((Metric("a.top1", 50.0, "%", True),))
    assert measures.values == {"a.top1": 50.0}
    assert (measures.notes, measures.details, measures.files) == ((), {}, ())


def test_a_protocol_cannot_report_two_numbers_under_one_key() -> None:
    metric = Metric("a.top1", 50.0, "%", True)
    with pytest.raises(ValueError, match=r"two metrics have the key a\.top1"):
        Measures((metric, metric))


def test_these_tasks_of_the_catalog_draw_their_cards() -> None:
    drawing = [task.name for task in TASKS if isinstance(task.protocol, Drawing)]
    dense = ["segment-linear", "segment-knn", "segment-upernet", "detect-cascade"]
    assert drawing == ["classify", "occlusion", *dense, "video"]
