from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.errors import UserError
from attmask.evaluation.datasets.sequences import Sequences
from tests.evaluation.videos import SIDE_HW, write_davis, write_mask, write_sequence
from tests.real_data import FOLDER, needs


def test_davis_2017_has_several_objects_per_sequence(tmp_path: Path) -> None:
    data = Sequences().open(write_davis(tmp_path))
    assert [sequence.name for sequence in data.sequences] == ["ball", "car"]
    ball, car = data.sequences
    assert ball.objects == ball.numbers == (1, 2)
    assert ball.size_hw == SIDE_HW
    assert [*ball.frames, *car.frames] == list(range(len(data.frames))) == list(range(12))
    assert data.frames.name(7) == "JPEGImages/480p/car/00001.jpg"
    assert car.masks[1] == tmp_path / "Annotations" / "480p" / "car" / "00001.png"
    assert data.annotations(None, 7).unique().tolist() == [0, 1, 2]
    assert list(data.sources) == ["frames"]


def test_davis_2016_has_one_object_of_0_and_255(tmp_path: Path) -> None:
    (sequence,) = Sequences().open(write_davis(tmp_path, ["ball"], year="2016")).sequences
    assert (sequence.objects, sequence.numbers) == ((255,), (1,))


def test_the_list_of_2017_is_preferred_and_the_year_can_be_chosen(tmp_path: Path) -> None:
    write_davis(tmp_path)
    older = tmp_path / "ImageSets" / "2016"
    older.mkdir()
    (older / "val.txt").write_text("car\n")
    assert len(Sequences().open(tmp_path).sequences) == 2
    assert [each.name for each in Sequences(year="2016").open(tmp_path).sequences] == ["car"]


def test_the_first_release_of_2016_lists_frames(tmp_path: Path) -> None:
    write_davis(tmp_path, year="2016")
    (tmp_path / "ImageSets" / "2016").rename(tmp_path / "ImageSets" / "480p")
    lines = [f"/JPEGImages/480p/car/{i:05d}.jpg /Annotations/480p/car/{i:05d}.png" for i in (0, 1)]
    (tmp_path / "ImageSets" / "480p" / "val.txt").write_text("\n".join(lines))
    (sequence,) = Sequences().open(tmp_path).sequences
    assert (sequence.name, len(sequence.frames)) == ("car", 6)


def test_a_folder_above_davis_will_do(tmp_path: Path) -> None:
    write_davis(tmp_path / "DAVIS")
    assert len(Sequences().open(tmp_path).sequences) == 2


def test_folders_of_frames_and_masks_are_sequences(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        write_sequence(tmp_path / name, tmp_path / name, frames=4, objects=1)
    data = Sequences().open(tmp_path)
    assert [(each.name, len(each.frames)) for each in data.sequences] == [("cat", 4), ("dog", 4)]
    assert data.frames.name(0) == "cat/00000.jpg"


def test_without_lists_all_sequences_are_taken(tmp_path: Path) -> None:
    for name in ("cat", "dog"):
        folders = (tmp_path / kind / name for kind in ("JPEGImages", "Annotations"))
        write_sequence(*folders, frames=4, objects=1)
    assert len(Sequences().open(tmp_path).sequences) == 2


def wrong(tmp_path: Path) -> str:
    with pytest.raises(UserError) as raised:
        Sequences().open(tmp_path)
    line = str(raised.value)
    assert "\n" not in line
    return line


def test_a_sequence_without_its_first_annotation_is_named(tmp_path: Path) -> None:
    write_davis(tmp_path)
    (tmp_path / "Annotations" / "480p" / "car" / "00000.png").unlink()
    found = wrong(tmp_path)
    assert "sequence car has no annotation of its first frame; add the mask" in found
    assert found.endswith("Annotations/480p/car/00000.png")


def test_a_sequence_without_any_annotation_is_named(tmp_path: Path) -> None:
    write_sequence(tmp_path / "JPEGImages" / "cat", tmp_path / "x", frames=4, objects=1)
    assert "sequence cat has no annotation of its first frame" in wrong(tmp_path)


def test_a_missing_later_annotation_is_named(tmp_path: Path) -> None:
    write_davis(tmp_path)
    (tmp_path / "Annotations" / "480p" / "car" / "00002.png").unlink()
    assert "sequence car has no annotation of 1 of its 6 frames" in wrong(tmp_path)


@pytest.mark.parametrize("keeps_mask", [True, False])
def test_a_missing_frame_is_named(tmp_path: Path, keeps_mask: bool) -> None:
    write_davis(tmp_path)
    (tmp_path / "JPEGImages" / "480p" / "car" / "00003.jpg").unlink()
    if not keeps_mask:
        (tmp_path / "Annotations" / "480p" / "car" / "00003.png").unlink()
    assert "frame 00003 of sequence car is missing" in wrong(tmp_path)


def test_every_second_frame_is_a_sequence_too(tmp_path: Path) -> None:
    write_davis(tmp_path, ["ball"], frames=8)
    for kind, ending in (("JPEGImages", "jpg"), ("Annotations", "png")):
        for frame in (1, 3, 5, 7):
            (tmp_path / kind / "480p" / "ball" / f"{frame:05d}.{ending}").unlink()
    assert len(Sequences().open(tmp_path).sequences[0].frames) == 4


def test_frames_of_different_sizes_are_named(tmp_path: Path) -> None:
    write_davis(tmp_path)
    Image.new("RGB", (64, 40)).save(tmp_path / "JPEGImages" / "480p" / "car" / "00002.jpg")
    found = wrong(tmp_path)
    assert "sequence car has frames of different sizes" in found
    assert "car/00000.jpg has 80 x 48 pixels" in found
    assert "car/00002.jpg has 64 x 40" in found


def test_a_first_mask_of_another_size_is_named(tmp_path: Path) -> None:
    write_davis(tmp_path)
    mask = tmp_path / "Annotations" / "480p" / "car" / "00000.png"
    write_mask(mask, np.ones((9, 16), dtype=np.uint8))
    assert "has 16 x 9 pixels, but its frame has 80 x 48" in wrong(tmp_path)


def test_two_frames_are_too_few(tmp_path: Path) -> None:
    write_davis(tmp_path, ["ball"], frames=2)
    assert "sequence ball has 2 frames; at least 3 are needed" in wrong(tmp_path)


def test_a_listed_sequence_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_davis(tmp_path)
    (tmp_path / "ImageSets" / "2017" / "val.txt").write_text("ball\nbus\n")
    assert "the frames of bus are missing in" in wrong(tmp_path)


def test_a_missing_list_and_folders_without_frames_are_named(tmp_path: Path) -> None:
    assert "has no sequences of frames; wanted DAVIS" in wrong(tmp_path)
    assert "is not a folder; wanted DAVIS" in wrong(tmp_path / "nowhere")
    write_davis(tmp_path)
    (tmp_path / "ImageSets" / "2017" / "val.txt").unlink()
    assert "ImageSets/2016/val.txt" in wrong(tmp_path)


@needs("davis2016_val8")
def test_real_sequences_open() -> None:
    data = Sequences().open(FOLDER / "davis2016_val8")
    assert (len(data.sequences), len(data.frames)) == (8, 372)
    assert {sequence.size_hw for sequence in data.sequences} == {(480, 854)}
