"""The task segment-upernet: a fine-tuned segmenter on images with masks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attmask.errors import UserError
from attmask.evaluation.catalog import find_tasks
from attmask.evaluation.datasets.annotated import Segments, WithSegments
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.segment_upernet import SegmentUpernet
from attmask.evaluation.run import measure
from tests.data.test_mask_files import write
from tests.evaluation.segmentation.test_counting import bright, segmenter

HALVES = (0, 1)


def data(root: Path, values: tuple[int, int] = HALVES, names: tuple[str, ...] = ()) -> Segments:
    """Two images whose left half is black and whose right half is white."""
    for number in range(2):
        right = np.arange(40) >= 20
        pixels = np.tile(np.uint8(255) * right[None, :, None].astype(np.uint8), (32, 1, 3))
        write(root / f"images/{number}.png", pixels)
        mask = np.where(np.tile(right, (32, 1)), values[1], values[0])
        write(root / f"masks/{number}.png", mask.astype(np.uint8))
    return WithSegments(names=names).open(root)


@pytest.fixture
def tuned(model: FrozenModel) -> FrozenModel:
    """With a segmenter that tells dark from light, whose values are 0 and 1."""
    return replace(model, segmenter=bright())


@pytest.mark.parametrize(
    ("values", "names", "miou"),
    [
        (HALVES, (), 100.0),
        (HALVES, ("dark", "light"), 100.0),
        ((4, 9), ("dark", "light"), 100.0),
        ((4, 9), ("light", "dark"), 0.0),
    ],
    ids=["values", "names", "names with other values", "names in another order"],
)
def test_classes_are_those_of_the_network_by_name_or_by_value(
    tuned: FrozenModel,
    extractor: FeatureExtractor,
    tmp_path: Path,
    values: tuple[int, int],
    names: tuple[str, ...],
    miou: float,
) -> None:
    images = data(tmp_path, values, names)
    SegmentUpernet().check(tuned, images)
    found = SegmentUpernet().measure(tuned, images, extractor)
    assert found.values["segment.miou"] == pytest.approx(miou)
    assert [row["name"] for row in found.details["classes"]] == ["dark", "light"]
    assert [file.name for file in found.files] == ["per_class.csv", "predictions.png"]
    assert all(file.is_file() for file in found.files)


@pytest.mark.parametrize(
    ("values", "names", "told"),
    [
        ((0, 7), (), "does not know the class 7 of .*, only the values 0, 1; give images"),
        (HALVES, ("cat", "dog"), "value 0 is cat in the masks of .* and dark in the training"),
        (HALVES, ("light", "dog"), "value 0 is light in the masks of .* and dark in the training"),
    ],
)
def test_other_classes_are_one_line_before_any_image_is_read(
    tuned: FrozenModel, tmp_path: Path, values: tuple[int, int], names: tuple[str, ...], told: str
) -> None:
    with pytest.raises(UserError, match=told) as caught:
        SegmentUpernet().check(tuned, data(tmp_path, values, names))
    assert "\n" not in str(caught.value)


def test_a_network_without_a_segmenter_is_one_line(model: FrozenModel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="tiny has no segmenter; train one with `attmask finetune"):
        SegmentUpernet().check(model, data(tmp_path))


@pytest.mark.parametrize(
    "asked",
    [{"flip": True}, {"scales": (0.5, 1.0)}, {"mode": "slide", "crop": 24, "stride": 16}],
    ids=["flip", "scales", "slide"],
)
def test_settings_of_inference_change_what_they_say_and_nothing_else(
    model: FrozenModel, extractor: FeatureExtractor, tmp_path: Path, asked: dict[str, Any]
) -> None:
    trained = replace(model, segmenter=segmenter())
    images = data(tmp_path)
    plain = SegmentUpernet().measure(trained, images, extractor)
    other = SegmentUpernet(**asked).measure(trained, images, extractor)
    assert plain.details["inference"] == segmenter().inference.model_dump(mode="json")
    changed = {
        key: value
        for key, value in other.details["inference"].items()
        if value != plain.details["inference"][key]
    }
    assert changed == {k: list(v) if k == "scales" else v for k, v in asked.items()}
    assert other.values != plain.values
    assert other.files[0].parent != plain.files[0].parent


def test_windows_that_leave_gaps_are_refused(tuned: FrozenModel, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="leave gaps; use stride=8 or less"):
        SegmentUpernet(crop=8, stride=16).check(tuned, data(tmp_path))


def test_a_card_names_the_segmenter_and_can_be_drawn(
    tuned: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    (task,) = find_tasks(["segment-upernet"])
    card = measure(task, tuned, data(tmp_path / "data"), tmp_path, extractor)
    assert tuned.segmenter is not None
    assert card.hashes["segmenter"] == tuned.segmenter.digest
    SegmentUpernet().draw([card], tmp_path / "drawn.png")
    assert (tmp_path / "drawn.png").read_bytes().startswith(b"\x89PNG")


def test_the_result_is_kept_where_the_files_cannot_be_written(
    tuned: FrozenModel, extractor: FeatureExtractor, tmp_path: Path
) -> None:
    extractor.cache.mkdir(parents=True)
    (extractor.cache / "plots").write_text("a file")
    found = SegmentUpernet().measure(tuned, data(tmp_path), extractor)
    assert found.values["segment.miou"] == pytest.approx(100)
    assert found.files == ()
    assert found.notes[-1].startswith("no files were written: cannot write ")
