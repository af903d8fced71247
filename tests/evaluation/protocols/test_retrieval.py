import pickle
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.datasets.landmarks import Landmarks, LandmarkSet
from attmask.evaluation.features.crops import as_tensor
from attmask.evaluation.features.forward import normalise
from attmask.evaluation.features.long_side import LongSide
from attmask.evaluation.features.readout import CLS, MultiScale
from attmask.evaluation.metrics.ranking import DIFFICULTIES, Truth, average, judge
from attmask.evaluation.metrics.whitening import learn_whitening
from attmask.evaluation.protocols.retrieval import MULTI_SCALE, Retrieval, rank
from attmask.evaluation.task import Measures
from tests.evaluation.models import extractor_in, tiny_model
from tests.photographs import photograph

QUERIES = 3
BOX = (0, 0, 16, 16)


def write_landmarks(folder: Path, *, hard: bool = True) -> LandmarkSet:
    """For each query: three wrong pictures, of which one shows what lies beside its box and one is
    junk; then its whole picture (hard) and its box (easy)."""
    pictures = folder / "jpg"
    pictures.mkdir(parents=True)
    names: list[str] = []
    truths = []
    for query in range(QUERIES):
        whole = photograph(64, 32, seed=query)
        small, junk = (photograph(w, 16, seed=100 + 10 * query + w) for w in (16, 48))
        for image in (whole.crop((16, 0, 64, 32)), small, junk, whole, whole.crop(BOX)):
            names.append(f"image_{len(names)}")
            image.save(pictures / f"{names[-1]}.jpg", quality=100, subsampling=0)
        whole.save(pictures / f"query_{query}.jpg", quality=100, subsampling=0)
        last = len(names) - 1
        answers = {"easy": [last], "hard": [last - 1] if hard else [], "junk": [last - 2]}
        truths.append({"bbx": list(BOX), **answers})
    queries = [f"query_{query}" for query in range(QUERIES)]
    found = {"gnd": truths, "imlist": names, "qimlist": queries}
    (folder / "gnd_roxford5k.pkl").write_bytes(pickle.dumps(found))
    return Landmarks().open(folder)


@pytest.fixture(scope="module")
def landmarks(tmp_path_factory: pytest.TempPathFactory) -> LandmarkSet:
    return write_landmarks(tmp_path_factory.mktemp("landmarks"))


def measured(protocol: Retrieval, data: LandmarkSet, folder: Path) -> Measures:
    return protocol.measure(tiny_model(), data, extractor_in(folder))


def plain_numbers(data: LandmarkSet, box: tuple[int, int, int, int] | None) -> dict[str, float]:
    """Mean average precision with Pillow, a bare forward pass and one dot product at a time."""
    model = tiny_model()

    def vector(file: str, cut: tuple[int, int, int, int] | None) -> torch.Tensor:
        image = Image.open(file).convert("RGB")
        image = image if cut is None else image.crop(cut)
        pixels = normalise(as_tensor(image)[None], model.data.mean, model.data.std)
        with torch.inference_mode():
            return functional.normalize(CLS(model.backbone, pixels)[0], dim=0)

    database = [vector(data.database.place(i), None) for i in range(len(data.database))]
    numbers = {}
    for difficulty in DIFFICULTIES:
        answers = []
        for query, truth in enumerate(data.truths):
            asked = vector(data.queries.place(query), box)
            order = sorted(range(len(database)), key=lambda i: -float(database[i] @ asked))
            answers.append(
                judge(np.array(order), truth.wanted(difficulty), truth.ignored(difficulty))
            )
        mean = average(answers)
        assert mean is not None
        numbers[f"retrieval.{difficulty}_map"] = 100 * mean.average_precision
    return numbers


@pytest.mark.parametrize(("queries", "box"), [("whole", None), ("box", BOX)])
def test_numbers_equal_a_plain_loop(
    landmarks: LandmarkSet,
    tmp_path: Path,
    queries: Literal["whole", "box"],
    box: tuple[int, int, int, int] | None,
) -> None:
    found = measured(Retrieval(image_size=64, queries=queries), landmarks, tmp_path).values
    expected = plain_numbers(landmarks, box)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert next(iter(found)) == "retrieval.medium_map"
    assert len(found) == 12


def test_whole_queries_find_whole_pictures_and_boxes_find_boxes(
    landmarks: LandmarkSet, tmp_path: Path
) -> None:
    whole = measured(Retrieval(image_size=64), landmarks, tmp_path).values
    box = measured(Retrieval(image_size=64, queries="box"), landmarks, tmp_path).values
    assert (whole["retrieval.hard_map"], box["retrieval.easy_map"]) == (100, 100)
    assert whole["retrieval.easy_map"] < 100
    assert box["retrieval.hard_map"] < 100


def test_scales_and_whitening_change_the_ranking_but_still_find_copies(
    landmarks: LandmarkSet, tmp_path: Path
) -> None:
    protocols = [
        Retrieval(image_size=64),
        Retrieval(image_size=64, scales=MULTI_SCALE),
        Retrieval(image_size=64, scales=MULTI_SCALE, equal_scales=True),
        Retrieval(image_size=64, whitening="database", whitening_width=6),
        Retrieval(image_size=64, whitening=landmarks.database.root, whitening_width=6),
        Retrieval(image_size=32),
    ]
    numbers = [dict(measured(protocol, landmarks, tmp_path).values) for protocol in protocols]
    assert [found["retrieval.hard_precision@1"] for found in numbers] == [100] * len(protocols)
    assert numbers[3] != numbers[0]
    assert numbers[4] != numbers[0]
    assert numbers[5] != numbers[0]


def test_scales_are_averaged_as_dino_does_without_length_one_first() -> None:
    scales = Retrieval(scales=MULTI_SCALE)
    assert not scales.equal_scales
    assert MultiScale(scales=MULTI_SCALE) == MultiScale(CLS, MULTI_SCALE, scales.equal_scales)


def test_whitening_is_learned_on_the_database(landmarks: LandmarkSet, tmp_path: Path) -> None:
    protocol = Retrieval(image_size=64, whitening="database", whitening_width=4)
    found = measured(protocol, landmarks, tmp_path)
    database, queries = (
        extractor_in(tmp_path).features(tiny_model(), source, LongSide(64), MultiScale()).vectors
        for source in (landmarks.database, landmarks.queries)
    )
    learned = learn_whitening(database, 4)
    similarity = learned(queries) @ learned(database).T
    answers = [
        judge(row.argsort(descending=True).numpy(), truth.wanted("medium"), truth.junk)
        for row, truth in zip(similarity, landmarks.truths, strict=True)
    ]
    mean = average(answers)
    assert mean is not None
    assert found.values["retrieval.medium_map"] == pytest.approx(100 * mean.average_precision)


def test_fewer_directions_than_asked_are_said(landmarks: LandmarkSet, tmp_path: Path) -> None:
    protocol = Retrieval(image_size=64, whitening="database")
    notes = measured(protocol, landmarks, tmp_path).notes
    assert "whitening kept 14 of 24 directions, which have variance" in notes


def test_of_equally_similar_images_the_earlier_comes_first() -> None:
    database = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0], [1.0, 0.0]]).repeat(50, 1)
    order = rank(database, torch.tensor([[1.0, 0.0]]))[0]
    assert order.tolist() == [*range(1, 200, 2), *range(0, 200, 2)]


def test_unreadable_pictures_leave_the_others_their_numbers(tmp_path: Path) -> None:
    data = write_landmarks(tmp_path / "data")
    first, query = Path(data.database.place(0)), Path(data.queries.place(0))
    first.write_bytes(b"no picture")
    query.write_bytes(b"no picture")
    found = measured(Retrieval(image_size=64, queries="box"), data, tmp_path)
    assert found.values["retrieval.easy_map"] == 100
    assert "1 unreadable database images count as not retrieved" in found.notes
    assert "1 unreadable queries are left out" in found.notes
    assert set(found.details["average precision by query"]["easy"]) == {
        "query_1.jpg",
        "query_2.jpg",
    }


def test_a_right_answer_that_cannot_be_read_was_never_found(tmp_path: Path) -> None:
    data = write_landmarks(tmp_path / "data")
    Path(data.database.place(data.truths[1].easy[0])).write_bytes(b"no picture")
    found = measured(Retrieval(image_size=64, queries="box"), data, tmp_path)
    assert found.values["retrieval.easy_map"] == pytest.approx(100 * 2 / 3)


def test_a_difficulty_without_answers_is_left_out_and_said(tmp_path: Path) -> None:
    data = write_landmarks(tmp_path / "data", hard=False)
    found = measured(Retrieval(image_size=64), data, tmp_path)
    assert "retrieval.hard_map" not in found.values
    assert found.notes == ("no query has a right image at difficulty hard",)


def test_no_answer_at_all_is_refused(landmarks: LandmarkSet, tmp_path: Path) -> None:
    empty = replace(landmarks, truths=(Truth(),) * QUERIES)
    with pytest.raises(UserError, match="no query has an easy or hard image"):
        measured(Retrieval(image_size=64), empty, tmp_path)


def test_settings_are_read_as_they_are_written() -> None:
    asked = Retrieval.model_validate({"whitening": "database", "scales": [1, 0.5]})
    assert (asked.whitening, asked.scales) == ("database", (1.0, 0.5))
    assert Retrieval.model_validate({"whitening": "/images"}).whitening == Path("/images")


@pytest.mark.parametrize(
    "wrong", [{"scales": []}, {"scales": [0]}, {"queries": "half"}, {"image_size": 0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Retrieval.model_validate(wrong)
