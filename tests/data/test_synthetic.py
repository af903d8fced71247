"""The synthetic world: exact, repeatable, the same at every size, and not solved by colour."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from attmask.data.synthetic import (
    CLASSES,
    MANIFEST,
    Scene,
    object_mask_path,
    scene,
    write_folder,
)
from attmask.errors import UserError


def _shrunk(image: np.ndarray, size: int) -> np.ndarray:
    """The mean over the squares of pixels that fall on one pixel of the smaller image."""
    step = len(image) // size
    return np.asarray(image.astype(float).reshape(size, step, size, step, -1).mean(axis=(1, 3)))


def _images(root: Path, split: str) -> list[Path]:
    return sorted((root / split).rglob("*.png"))


@pytest.fixture(scope="module")
def world() -> list[Scene]:
    """Six hundred scenes at 64 pixels, sixty of each class."""
    return [scene(index, seed=3, size=64) for index in range(600)]


def test_there_are_ten_classes_in_the_order_of_sorted_folders() -> None:
    assert len(set(CLASSES)) == 10
    assert list(CLASSES) == sorted(CLASSES)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**40), st.integers(0, 2**32), st.integers(16, 80))
def test_any_seed_index_and_size_give_a_scene_with_its_object(
    seed: int, index: int, size: int
) -> None:
    drawn = scene(index, seed=seed, size=size)
    assert drawn.image.shape == (size, size, 3)
    assert drawn.label == index % len(CLASSES)
    assert 0.05 < drawn.mask.mean() < 0.6


def test_a_scene_depends_on_seed_and_index_alone() -> None:
    first = scene(17, seed=5, size=48)
    scene(18, seed=5, size=64)
    again = scene(17, seed=5, size=48)
    assert np.array_equal(first.image, again.image)
    assert np.array_equal(first.mask, again.mask)
    assert not np.array_equal(first.image, scene(17, seed=6, size=48).image)
    assert not np.array_equal(first.image, scene(27, seed=5, size=48).image)


@pytest.mark.parametrize("index", range(10))
def test_the_same_scene_is_drawn_at_every_size(index: int) -> None:
    small, large = scene(index, seed=1, size=32), scene(index, seed=1, size=224)
    assert abs(_shrunk(large.image, 32) - small.image).mean() < 4  # of 255 levels
    share = _shrunk(large.mask[..., None], 32)[..., 0]
    clear = (share < 0.3) | (share > 0.7)
    assert np.array_equal(share[clear] > 0.5, small.mask[clear])


def test_the_mask_is_one_object_of_a_third_of_the_side_or_more(world: list[Scene]) -> None:
    for drawn in world:
        rows, columns = np.flatnonzero(drawn.mask.any(1)), np.flatnonzero(drawn.mask.any(0))
        extent = max(np.ptp(rows), np.ptp(columns)) + 1
        assert 0.33 * 64 < extent < 0.95 * 64


def test_objects_are_vivid_and_backgrounds_are_muted(world: list[Scene]) -> None:
    colour = np.stack([np.ptp(drawn.image.astype(int), axis=2) for drawn in world])
    light = np.stack([drawn.image.mean(axis=2) for drawn in world])
    mask = np.stack([drawn.mask for drawn in world])
    assert colour[mask].mean() > 2 * colour[~mask].mean()
    assert light[mask].std() > 2 * light[~mask].std()


def test_the_background_says_nothing_about_the_class(world: list[Scene]) -> None:
    means = np.array([drawn.image[~drawn.mask].mean(axis=0) for drawn in world])
    labels = np.array([drawn.label for drawn in world])
    between = np.array([means[labels == label].mean(axis=0) for label in range(10)]).std(axis=0)
    # The spread of ten means of sixty scenes, if the classes do not matter, is std / sqrt(60).
    assert (between < 2 * means.std(axis=0) / np.sqrt(60)).all()


def test_mean_colour_and_pixels_are_weak_cues(world: list[Scene]) -> None:
    labels = np.array([drawn.label for drawn in world])
    pixels = np.array([drawn.image.ravel() for drawn in world]) / 255
    colours = np.array([drawn.image.mean(axis=(0, 1)) for drawn in world])
    for features in (colours, pixels):
        nearest = KNeighborsClassifier(20).fit(features[:400], labels[:400])
        assert nearest.score(features[400:], labels[400:]) < 0.4


def _edge_directions(drawn: Scene) -> np.ndarray:
    """The strength of grey edges of 8 directions in 6 x 6 parts of the object's box."""
    y, x = np.nonzero(drawn.mask)
    box = (x.min(), y.min(), x.max() + 1, y.max() + 1)
    grey = Image.fromarray(drawn.image).convert("L").resize((48, 48), box=box)
    down, right = np.gradient(np.asarray(grey, dtype=float))
    direction = np.floor(np.arctan2(down, right) % np.pi / np.pi * 8).astype(int) % 8
    weights = np.hypot(down, right)[..., None] * np.eye(8)[direction]
    return np.asarray(np.sqrt(_shrunk(weights, 6)).ravel())


def test_shape_and_texture_tell_the_classes_apart(world: list[Scene]) -> None:
    features = np.array([_edge_directions(drawn) for drawn in world])
    labels = np.array([drawn.label for drawn in world])
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
    model.fit(features[:400], labels[:400])
    assert model.score(features[400:], labels[400:]) > 0.85, model.score(
        features[400:], labels[400:]
    )


def test_a_scene_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(UserError, match=r"size 8 is too small.* use 16"):
        scene(0, seed=0, size=8)
    with pytest.raises(UserError, match="must not be negative"):
        scene(-1, seed=0, size=32)


def test_a_folder_holds_images_and_masks_by_split_and_class(tmp_path: Path) -> None:
    write_folder(tmp_path, train=20, val=10, size=32, seed=4)
    train, val = _images(tmp_path, "train"), _images(tmp_path, "val")
    assert (len(train), len(val)) == (20, 10)
    assert {path.parent.name for path in train} == set(CLASSES)
    assert {path.name for path in train}.isdisjoint(path.name for path in val)
    for path in train + val:
        drawn = scene(int(path.stem), seed=4, size=32)
        assert path.parent.name == CLASSES[drawn.label]
        assert np.array_equal(np.asarray(Image.open(path)), drawn.image)
        mask = np.asarray(Image.open(object_mask_path(path, tmp_path)))
        assert np.array_equal(mask, drawn.mask * np.uint8(255))


def test_validation_scenes_do_not_depend_on_the_number_of_training_scenes(tmp_path: Path) -> None:
    write_folder(tmp_path / "few", train=1, val=3, size=16, seed=0)
    write_folder(tmp_path / "more", train=7, val=3, size=16, seed=0)
    few, more = _images(tmp_path / "few", "val"), _images(tmp_path / "more", "val")
    assert [path.read_bytes() for path in few] == [path.read_bytes() for path in more]


def test_a_finished_folder_is_left_alone(tmp_path: Path) -> None:
    write_folder(tmp_path, train=3, val=2, size=16, seed=0)
    image = _images(tmp_path, "train")[0]
    image.write_bytes(b"touched")
    write_folder(tmp_path, train=3, val=2, size=16, seed=0)
    assert image.read_bytes() == b"touched"


def test_an_interrupted_folder_is_finished(tmp_path: Path) -> None:
    write_folder(tmp_path, train=3, val=2, size=16, seed=0)
    image = _images(tmp_path, "train")[0]
    whole = image.read_bytes()
    image.write_bytes(whole[:50])
    _images(tmp_path, "val")[0].unlink()
    (tmp_path / MANIFEST).unlink()
    write_folder(tmp_path, train=3, val=2, size=16, seed=0)
    assert image.read_bytes() == whole
    assert len(_images(tmp_path, "val")) == 2
    assert json.loads((tmp_path / MANIFEST).read_text())["train"] == 3


def test_a_folder_of_other_settings_or_other_images_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path / "scenes", train=3, val=2, size=16, seed=0)
    with pytest.raises(UserError, match="choose another folder"):
        write_folder(tmp_path / "scenes", train=3, val=2, size=16, seed=1)
    (tmp_path / "photos" / "train").mkdir(parents=True)
    (tmp_path / "photos" / "train" / "cat.jpg").touch()
    with pytest.raises(UserError, match=r"cat\.jpg is not one of the scenes"):
        write_folder(tmp_path / "photos", train=3, val=2, size=16, seed=0)


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write scenes"):
        write_folder(tmp_path / "file" / "below", train=1, val=0, size=16, seed=0)


def test_the_mask_of_a_foreign_image_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not in"):
        object_mask_path(Path("elsewhere/a.png"), tmp_path)
