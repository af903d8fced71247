from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.datasets.sequences import Sequences, Videos
from attmask.evaluation.features.forward import ReadBatch
from attmask.evaluation.video.propagation import Propagation
from attmask.evaluation.video.tracking import Tracked, follow
from tests.evaluation.videos import write_davis

PATCH = 4


@pytest.fixture
def data(tmp_path: Path) -> Videos:
    return Sequences().open(write_davis(tmp_path / "davis", ["ball"]))


def perfect(data: Videos) -> Iterator[ReadBatch]:
    """Features that say which object a patch shows, so that nothing can go wrong."""
    for index in range(len(data.frames)):
        truth = data.annotations(None, index)
        maps = torch.nn.functional.one_hot(truth[2::PATCH, 2::PATCH].long(), 3).permute(2, 0, 1)
        pixels = torch.zeros(1, 3, 1, 1, dtype=torch.uint8)
        yield ReadBatch(maps[None, None].float(), pixels, torch.ones(1).bool(), truth[None])


def tracked(data: Videos) -> Tracked:
    return follow(data.sequences[0], perfect(data), Propagation(radius=0), PATCH, 0.05)


def test_objects_are_found_where_features_tell_them_apart(data: Videos) -> None:
    found = tracked(data).scores
    assert found.objects == (1, 2)
    assert found.frames == ("00001", "00002", "00003", "00004")  # not the first, not the last
    assert found.j.shape == found.f.shape == (2, 4)
    assert found.j.min() > 0.65  # patches of 4 pixels, and objects of 20 x 24
    assert found.f.min() == 1


def test_masks_are_written_with_the_numbers_of_their_objects(data: Videos, tmp_path: Path) -> None:
    found = tracked(data)
    found.write(tmp_path / "masks")
    found.write(tmp_path / "masks")  # a second time replaces them
    files = sorted((tmp_path / "masks" / "ball").iterdir())
    assert [file.name for file in files] == [f"{i:05d}.png" for i in range(6)]
    first = np.array(Image.open(files[0]))
    assert (first == np.array(Image.open(data.sequences[0].masks[0]))).all()
    assert {Image.open(file).mode for file in files} == {"P"}


def test_a_folder_for_masks_that_cannot_be_written_is_named(data: Videos, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write masks .* video\.masks"):
        tracked(data).write(tmp_path / "file")


def test_a_sequence_is_drawn_frame_by_frame(data: Videos, tmp_path: Path) -> None:
    tracked(data).animate(data, tmp_path / "ball.webp")
    with Image.open(tmp_path / "ball.webp") as picture:
        assert getattr(picture, "n_frames", 1) == 6
        assert picture.width == 80
