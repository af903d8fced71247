"""Segmentation during training: where masks are, what is measured, and that it never fails."""

import logging
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from attmask.data.config import DataConfig
from attmask.data.images import Images
from attmask.data.sources import open_images
from attmask.errors import UserError
from attmask.evaluation import online_segmentation as module
from attmask.evaluation.datasets.masked import Masked
from attmask.evaluation.features.lockstep import Lockstep
from attmask.evaluation.online_segmentation import OnlineSegmentation
from attmask.evaluation.protocols.segment_knn import SegmentKnn
from attmask.metric import values_by_key
from tests.evaluation.coloured import write_coloured
from tests.evaluation.models import extractor_in, tiny_backbone, tiny_model
from tests.real_data import FOLDER, needs

DATA = DataConfig()


def made(images: Images, most: int = 300) -> OnlineSegmentation:
    return OnlineSegmentation(images, DATA, most, image_size=32)


def measured(segmentation: OnlineSegmentation) -> dict[str, float]:
    network = Lockstep(tiny_backbone(), DATA, nullcontext, lambda _: None, lambda: False)
    return values_by_key(segmentation(network))


def test_it_measures_what_the_task_does_where_masks_have_the_size_of_the_input(
    tmp_path: Path,
) -> None:
    root = write_coloured(tmp_path / "data", size_hw=(32, 32), train=6, val=4)
    found = measured(made(open_images(root / "images")))
    wanted = SegmentKnn().measure(tiny_model(), Masked().open(root), extractor_in(tmp_path)).values
    assert list(found) == ["segment_knn.miou"]
    assert found["segment_knn.miou"] == pytest.approx(wanted["segment_knn.miou"], abs=0.01)


def test_limits_are_kept_to_and_zero_is_off(tmp_path: Path) -> None:
    images = open_images(write_coloured(tmp_path, train=6, val=4) / "images")
    assert [len(part) for part in made(images, most=6).images or ()] == [4, 2]
    assert len(made(images, most=0)) == 0
    assert measured(made(images, most=0)) == {}


def test_without_held_out_images_a_tenth_of_train_is_asked_about(tmp_path: Path) -> None:
    images = open_images(write_coloured(tmp_path, train=20) / "images")
    assert [len(part) for part in made(images).images or ()] == [18, 2]


def test_a_missing_mask_or_library_is_one_line_and_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_coloured(tmp_path / "data", train=6, val=4)
    images = open_images(root / "images")

    def missing(classes: int) -> None:
        raise UserError("torchmetrics is missing; install it")

    with caplog.at_level(logging.INFO):
        with monkeypatch.context() as patched:
            patched.setattr(module, "Segmented", missing)
            assert measured(made(images)) == {}
        assert caplog.messages == [
            "torchmetrics is missing; install it; segmentation is not evaluated in this run"
        ]
        caplog.clear()
        (root / "masks/val/1.png").unlink()
        assert measured(made(images)) == {}
        (line,) = caplog.messages
        assert "1 of 4 held-out images has no mask" in line
        caplog.clear()
        shutil.rmtree(root / "masks")
        assert measured(made(images)) == {}
    assert caplog.messages == [], "most images have no masks"


@needs("pets160")
def test_trimaps_of_pets_are_two_classes() -> None:
    segmentation = made(open_images(FOLDER / "pets160"), most=30)
    assert segmentation.images is not None
    assert segmentation.images[0].classes.names == ("object", "background")
    assert 20 < measured(segmentation)["segment_knn.miou"] < 100
