from pathlib import Path

import pytest

from attmask.data.source import Source
from attmask.evaluation.predictions import Choice, Predictions, pictures_of
from attmask.evaluation.reporting.predictions import lines
from tests.evaluation.models import CPU, extractor_in, tiny_model, with_classifier
from tests.sources import png, touch


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Source]:
    for name in ("train/a/1.png", "train/b/2.png", "val/a/3.png"):
        touch(tmp_path, name).joinpath(name).write_bytes(png(len(name)))
    (tmp_path / "train" / "b" / "2.png").write_bytes(b"broken")
    return pictures_of(tmp_path, None, 3)


def table(sources: dict[str, Source], *, every_class: bool = False, multi_label: bool = False,
          top: int | None = None, threshold: float | None = None) -> list[list[str]]:  # fmt: skip
    model = with_classifier(tiny_model(), ("a", "b", "c"), multi_label=multi_label)
    assert model.classifier is not None
    choice = Choice.of(model.classifier, top, threshold)
    extractor = extractor_in(Path("unused"))
    found = Predictions(model, model.classifier, sources, choice, extractor, CPU)
    return list(lines(found, every_class=every_class))


def test_a_line_names_the_image_its_split_its_label_and_its_class(
    sources: dict[str, Source],
) -> None:
    header, first, broken, held_out = table(sources)
    assert header == ["name", "split", "label", "class", "probability"]
    assert first[:3] == ["a/1.png", "train", "a"]
    assert first[3] in "abc"
    assert 1 / 3 < float(first[4]) <= 1
    assert broken == ["b/2.png", "train", "b", "", ""]
    assert held_out[:3] == ["a/3.png", "val", "a"]


def test_further_classes_and_all_probabilities_have_columns_of_their_own(
    sources: dict[str, Source],
) -> None:
    header, first, broken, _ = table(sources, top=2, every_class=True)
    assert header[3:] == [
        *("class", "probability", "class_2", "probability_2"),
        *("probability:a", "probability:b", "probability:c"),
    ]
    every = dict(zip("abc", map(float, first[7:]), strict=True))
    assert sum(every.values()) == pytest.approx(1, abs=1e-5)
    assert float(first[4]) == max(every.values()) == every[first[3]]
    assert float(first[6]) == sorted(every.values())[1] == every[first[5]]
    assert broken[3:] == [""] * 7


def test_one_split_has_no_column_and_images_without_labels_neither(
    sources: dict[str, Source], tmp_path: Path
) -> None:
    assert table({"val": sources["val"]})[0] == ["name", "label", "class", "probability"]
    flat = pictures_of(tmp_path / "val" / "a", None, 3)
    assert table(flat)[0] == ["name", "class", "probability"]


def test_several_classes_and_their_probabilities_are_joined(sources: dict[str, Source]) -> None:
    header, first, broken, _ = table(sources, multi_label=True, threshold=1e-6)
    assert header[3:] == ["class", "probability"]
    assert sorted(first[3].split("|")) == ["a", "b", "c"]
    numbers = list(map(float, first[4].split("|")))
    assert numbers == sorted(numbers, reverse=True)
    assert broken[3:] == ["", ""]
    none = table(sources, multi_label=True, threshold=1 - 1e-9)[1]
    assert none[3:] == ["", ""], "no class is probable enough"
