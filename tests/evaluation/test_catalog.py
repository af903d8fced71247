from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.catalog import TASKS, find_tasks, settings_of, split_words
from attmask.settings import Config


def test_every_task_has_a_name_of_its_own_a_layout_and_settings_with_a_meaning() -> None:
    names = [task.name for task in TASKS]
    assert len(set(names)) == len(names)
    for task in TASKS:
        assert task.dataset.layout
        assert task.about
        assert all(line.meaning for line in settings_of(task)), task.name


def test_the_protocols_of_the_paper_are_all_there() -> None:
    wanted = {"knn", "fewshot", "linear", "linear-cached", "clustering", "quality", "occlusion"}
    wanted |= {"backgrounds", "retrieval-roxford", "retrieval-rparis"}
    wanted |= {"knn-20", "linear-20", "linear-places205"}
    wanted |= {f"recall-{name}" for name in ("cub", "cars", "sop", "inshop")}
    assert wanted <= {task.name for task in TASKS}


def test_tasks_on_20_per_cent_take_the_first_260_images_of_each_class_and_test_on_all() -> None:
    for name, whole in (("knn-20", "knn"), ("linear-20", "linear")):
        few, task = find_tasks([name, whole])
        assert _of(few.dataset) == _of(task.dataset) | {"per_class": 260}
        assert few.protocol == task.protocol, "the protocol is the same"


def test_20_per_cent_are_the_first_260_names_of_each_class(tmp_path: Path) -> None:
    for split, images in (("train", 263), ("val", 2)):
        for name in ("ant", "bee"):
            (tmp_path / split / name).mkdir(parents=True)
            for index in reversed(range(images)):
                (tmp_path / split / name / f"{index:03}.jpg").touch()
    (task,) = find_tasks(["linear-20"])
    data = task.dataset.open(tmp_path)
    names = [data.train.name(index) for index in range(len(data.train))]
    wanted = [f"{name}/{index:03}.jpg" for name in ("ant", "bee") for index in range(260)]
    assert sorted(names) == wanted
    assert len(data.test) == 4


def test_a_setting_goes_to_every_task_that_has_it_and_a_dotted_one_to_one() -> None:
    knn, linear, quality = find_tasks(
        ["knn", "linear", "quality"], ["image_size=64", "knn.per_class=5", "linear.epochs=3"]
    )
    assert [_of(task.protocol)["image_size"] for task in (knn, linear, quality)] == [64] * 3
    assert (_of(knn.dataset)["per_class"], _of(linear.dataset)["per_class"]) == (5, None)
    assert _of(linear.protocol)["epochs"] == 3


def _of(config: object) -> dict[str, object]:
    assert isinstance(config, Config)
    return config.model_dump()


def test_an_unknown_task_setting_or_value_is_one_line_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"there is no task 'knnn'; did you mean knn"):
        find_tasks(["knnn"])
    with pytest.raises(UserError, match=r"no setting 'temprature'; did you mean knn\.temperature"):
        find_tasks(["knn"], ["temprature=1"])
    with pytest.raises(UserError, match=r"^knn\.temperature=-1: should be greater than 0"):
        find_tasks(["knn"], ["temperature=-1"])
    with pytest.raises(UserError, match=r"no setting 'linear\.epochs'"):
        find_tasks(["knn"], ["linear.epochs=3"])


def test_words_that_are_no_tasks_are_checkpoints() -> None:
    assert split_words(["a", "knn", "b", "linear"]) == (["a", "b"], ["knn", "linear"])
    with pytest.raises(UserError, match=r"no task 'knnn'; did you mean knn"):
        split_words(["run", "knnn"])
    with pytest.raises(UserError, match=r"no task was given for run; `attmask tasks` lists them"):
        split_words(["run"])
    with pytest.raises(UserError, match=r"no checkpoint was given for knn; put a run before it"):
        split_words(["knn"])
