from dataclasses import replace
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.masked import Masked, MaskedSplit
from attmask.evaluation.protocols.segment_linear import SegmentLinear
from attmask.evaluation.task import Measures
from tests.evaluation.coloured import NAMES, write_coloured
from tests.evaluation.models import extractor_in, tiny_model
from tests.evaluation.reporting.test_table import CARD
from tests.groups import in_group

QUICK = SegmentLinear(steps=40, batch_size=4, rate=0.02)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> MaskedSplit:
    return Masked().open(write_coloured(tmp_path_factory.mktemp("coloured"), train=9, val=5))


@pytest.fixture(scope="module")
def measured(data: MaskedSplit, tmp_path_factory: pytest.TempPathFactory) -> Measures:
    return QUICK.measure(tiny_model(), data, extractor_in(tmp_path_factory.mktemp("linear")))


def test_training_tells_colours_apart(measured: Measures) -> None:
    keys = ["segment_linear.miou", "segment_linear.aacc", "segment_linear.macc"]
    assert list(measured.values) == keys
    assert measured.values[keys[0]] > 85
    assert measured.details["layers"] == [1, 1, 2, 2], "of a network of two blocks"
    assert [file.name for file in measured.files] == ["per_class.csv", "predictions.png"]


def test_unreadable_images_are_left_out_with_their_masks(data: MaskedSplit, tmp_path: Path) -> None:
    root = write_coloured(tmp_path / "data", train=9, val=5)
    (root / "images/train/0.png").write_bytes(b"no picture")
    (root / "images/val/0.png").write_bytes(b"no picture")
    broken = Masked().open(root)
    found = QUICK.measure(tiny_model(), broken, extractor_in(tmp_path))
    assert len(found.details["worst"]) == 4
    assert "0.png" not in [image["image"] for image in found.details["worst"]]
    assert found.values["segment_linear.miou"] > 70


def test_several_processes_measure_what_one_measures(
    data: MaskedSplit, measured: Measures, tmp_path: Path
) -> None:
    def member(_: int) -> dict[str, float]:
        return QUICK.measure(tiny_model(), data, extractor_in(tmp_path)).values

    first, second = in_group(2, tmp_path / "group", member)
    assert first == second
    assert first == pytest.approx(measured.values, rel=0.01)


def test_sizes_and_layers_that_do_not_exist_are_refused(data: MaskedSplit) -> None:
    SegmentLinear(layers=(-1,)).check(tiny_model(), data)
    with pytest.raises(UserError, match="layer 7 does not exist"):
        SegmentLinear(layers=(7,)).check(tiny_model(), data)
    with pytest.raises(UserError, match="30 is not a multiple of"):
        SegmentLinear(image_size=30).check(tiny_model(), data)


def test_cards_of_several_networks_are_drawn_as_bars(measured: Measures, tmp_path: Path) -> None:
    card = replace(CARD, metrics=list(measured.metrics), details=dict(measured.details))
    assert [row["name"] for row in card.details["classes"]] == list(NAMES)
    QUICK.draw([card, replace(card, checkpoint="other")], tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes()[:4] == b"\x89PNG"
