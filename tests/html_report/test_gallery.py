"""Which images a report shows."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from attmask.data.sources import open_images
from attmask.evaluation.loading import load_model
from attmask.evaluation.model import FrozenModel
from attmask.html_report.gallery import PROBES, gallery_of


@pytest.fixture(scope="module")
def model(run: Path) -> FrozenModel:
    return load_model(run)


def test_held_out_images_are_shown_with_their_classes_and_objects(
    model: FrozenModel, scenes: Path
) -> None:
    gallery = gallery_of(open_images(scenes), model)
    assert len(gallery.crops) == 20
    assert gallery.grid == (4, 4)
    assert len(gallery.probes) == PROBES
    assert gallery.label(3) == gallery.names[3].split("/")[0]
    objects = gallery.objects()
    assert objects is not None
    assert objects.shape == (PROBES, 16)
    assert 0 < objects.mean() < 0.7
    assert gallery.with_probes(2).probes == gallery.probes[:2]


def test_images_without_splits_labels_and_masks_are_shown_too(
    model: FrozenModel, tmp_path: Path
) -> None:
    for number in range(3):
        Image.new("RGB", (50, 40), (90 * number, 20, 80)).save(tmp_path / f"{number}.png")
    (tmp_path / "broken.png").write_bytes(b"no picture")
    gallery = gallery_of(open_images(tmp_path), model)
    assert gallery.names == ["0.png", "1.png", "2.png"]
    assert gallery.probes == [0, 1, 2]
    assert (gallery.labels, gallery.label(0), gallery.objects()) == (None, None, None)


def test_the_key_follows_the_images(model: FrozenModel, scenes: Path, tmp_path: Path) -> None:
    first = gallery_of(open_images(scenes), model)
    assert gallery_of(open_images(scenes), model).key == first.key
    Image.new("RGB", (50, 40)).save(tmp_path / "another.png")
    assert gallery_of(open_images(tmp_path), model).key != first.key


def test_a_crop_of_one_channel_is_shown_in_grey_and_one_of_many_by_its_first_three(
    model: FrozenModel, scenes: Path
) -> None:
    gallery = gallery_of(open_images(scenes), model)
    colours = gallery.crops.pixels
    gallery.crops.pixels = colours[:, :1]
    red, green, blue = gallery.picture(0, 8).getpixel((3, 3))  # type: ignore[misc]
    assert red == green == blue
    gallery.crops.pixels = torch.cat([colours, colours], dim=1)
    assert gallery.picture(0, 8).mode == "RGB"
