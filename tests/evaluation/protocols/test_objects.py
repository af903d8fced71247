import shutil
from pathlib import Path

import pytest

from attmask.evaluation.datasets.objects import WithObjects
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.protocols.objects import ObjectAttention
from tests.evaluation.object_reports import objects_of


def test_shares_become_per_cents_with_plain_names(
    scenes: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    data = WithObjects().open(scenes)
    found = ObjectAttention(ratio=0.5, image_size=40).measure(model, data, extractor)
    expected = objects_of(model.backbone, data.images, image_size=40, data=model.data, ratio=0.5)
    name, share = next(iter(found.values.items()))
    assert name == "objects.attention"
    assert share == pytest.approx(100 * expected.attention_on_object)
    assert found.values["objects.area"] == pytest.approx(100 * expected.object_area)
    assert found.values["objects.patches_high"] == pytest.approx(48)  # 12 of 25 patches
    assert "the mask ratio is 50% for every strategy" in found.notes[0]


def test_images_whose_object_is_not_seen_are_left_out_and_counted(
    scenes: Path, tmp_path: Path, model: FrozenModel, extractor: FeatureExtractor
) -> None:
    shutil.copytree(scenes, tmp_path / "data")
    data = WithObjects().open(tmp_path / "data")
    Path(data.images.place(3)).write_bytes(b"no picture")
    found = ObjectAttention().measure(model, data, extractor)
    assert extractor.unreadable(data.images) == 1
    assert found.notes[1].startswith(f"1 of {len(data.images)} images were left out")
