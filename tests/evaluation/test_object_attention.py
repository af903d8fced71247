import shutil
from pathlib import Path

import pytest

from attmask.evaluation.bench import Bench
from attmask.evaluation.datasets.objects import WithObjects
from attmask.evaluation.object_attention import ObjectAttention
from attmask.evaluation.objects import measure_objects
from attmask.evaluation.subject import Subject


def test_shares_become_per_cents_with_plain_names(
    scenes: Path, subject: Subject, bench: Bench
) -> None:
    data = WithObjects().open(scenes)
    found = ObjectAttention(ratio=0.5, image_size=40).measure(subject, data, bench)
    expected = measure_objects(
        subject.backbone, data.images, image_size=40, data=subject.data, ratio=0.5
    )
    name, share = next(iter(found.numbers.items()))
    assert name == "attention on the object"
    assert share == pytest.approx(100 * expected.attention_on_object)
    assert found.numbers["area of the object"] == pytest.approx(100 * expected.object_area)
    assert found.numbers["patches hidden by high"] == pytest.approx(48)  # 12 of 25 patches
    assert "asked to hide 50% of the patches" in found.notes[0]


def test_images_whose_object_is_not_seen_are_left_out_and_counted(
    scenes: Path, tmp_path: Path, subject: Subject, bench: Bench
) -> None:
    shutil.copytree(scenes, tmp_path / "data")
    data = WithObjects().open(tmp_path / "data")
    Path(data.images.place(3)).write_bytes(b"no picture")
    found = ObjectAttention().measure(subject, data, bench)
    assert found.notes[1].startswith(f"1 of {len(data.images)} images were left out")
