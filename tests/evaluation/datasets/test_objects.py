import shutil
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.objects import WithObjects
from attmask.evaluation.datasets.pictures import Pictures


def test_only_images_with_a_mask_are_taken_evenly_over_the_classes(
    scenes: Path, tmp_path: Path
) -> None:
    shutil.copytree(scenes, tmp_path / "data")
    everything = Pictures().open(tmp_path / "data").images
    assert len(WithObjects().open(tmp_path / "data").images) == len(everything)
    masks = sorted((tmp_path / "data" / "masks" / "val").rglob("*.png"))
    masks[0].unlink()
    images = WithObjects().open(tmp_path / "data").images
    assert len(images) == len(everything) - 1
    assert Path(images.name(0)).stem != masks[0].stem
    few = WithObjects(max_images=5).open(tmp_path / "data").images
    assert few.labels is not None
    assert len(set(few.labels.tolist())) == len(few) == 5


def test_images_without_masks_are_one_line_with_where_masks_belong(
    scenes: Path, tmp_path: Path
) -> None:
    shutil.copytree(scenes / "val", tmp_path / "data" / "val")
    with pytest.raises(UserError, match=r"has a mask; wanted .* masks/SPLIT/CLASS/ID.png"):
        WithObjects().open(tmp_path / "data" / "val")
