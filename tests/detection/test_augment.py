"""Augmentation of images with objects: pixels, boxes and masks move together."""

from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from attmask.data.coco import Annotated
from attmask.data.config import DataConfig
from attmask.detection.augment import DetectAugment, DetectAugmentConfig
from attmask.models.detection.instances import Instances

HEIGHT, WIDTH = 60, 80
BOXES = ((5, 10, 25, 40), (40, 20, 70, 30), (60, 45, 78, 58))
SMALL = DetectAugmentConfig(
    sizes=(48, 64), longest=100, crop_sizes=(40, 50), crop_range=(24, 36), flip=0.5
)
PLAIN = DetectAugmentConfig(sizes=(60,), longest=80, crop=False, flip=0)


def scene(*crowds: int) -> tuple[np.ndarray, Annotated]:
    """Bright rectangles on black; each object has its own brightness."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    for number, (x1, y1, x2, y2) in enumerate(BOXES):
        pixels[y1:y2, x1:x2] = 100 + 60 * number
    objects = Annotated(
        "scene",
        (WIDTH, HEIGHT),
        np.arange(3),
        np.array(BOXES, dtype=np.float32),
        np.array([4, 5, 6]),
        np.isin(np.arange(3), crowds),
        np.ones(3, dtype=np.float32),
        (None, None, None),
    )
    return pixels, objects


def augmented(
    number: int, config: DetectAugmentConfig = SMALL, *crowds: int
) -> tuple[torch.Tensor, Instances]:
    return DetectAugment(config, DataConfig(mean=(0.0,), std=(1.0,)))(*scene(*crowds), number)


def test_a_number_gives_the_same_image_again_and_another_number_another() -> None:
    first, again, other = augmented(1), augmented(1), augmented(2)
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1].masks, again[1].masks)
    assert first[0].shape != other[0].shape or not torch.equal(first[0], other[0])


@pytest.mark.parametrize("number", range(40))
def test_boxes_and_masks_stay_where_their_objects_are(number: int) -> None:
    image, truth = augmented(number)
    assert truth.size_hw == tuple(image.shape[1:]) == tuple(truth.masks.shape[1:])
    assert len(truth.boxes) == len(truth.labels) == len(truth.masks)
    limits = torch.tensor([*truth.size_hw[::-1]] * 2).float()
    assert ((truth.boxes >= 0) & (truth.boxes <= limits)).all()
    assert (truth.boxes[:, 2:] > truth.boxes[:, :2]).all()
    seen = torch.zeros(truth.size_hw)
    for box, label, mask in zip(truth.boxes, truth.labels.tolist(), truth.masks, strict=True):
        seen += mask
        if (box[2:] - box[:2]).min() < 12:
            continue  # little but the blurred edges of an object
        brightness = image[0][mask.bool()].median() * 255
        assert abs(float(brightness) - (100 + 60 * (label - 4))) < 2
        rows, columns = torch.where(mask > 0)
        corners = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        # The crop is made at a coarser size than the image may have, so a pixel may be two.
        torch.testing.assert_close(box, torch.tensor(corners).float(), atol=2.0, rtol=0)
    # What is bright belongs to an object, but for the blurred edges.
    assert float(((image[0] > 0.2) != (seen > 0)).float().mean()) < 0.06


def test_the_shorter_side_is_one_of_the_sizes_and_the_longer_is_limited() -> None:
    config = SMALL.model_copy(update={"crop": False})
    sizes = {augmented(number, config)[1].size_hw for number in range(20)}
    assert sizes == {(48, 64), (64, 85)}
    narrow = SMALL.model_copy(update={"crop": False, "longest": 70})
    assert {augmented(n, narrow)[1].size_hw for n in range(20)} == {(48, 64), (53, 70)}


def test_without_changes_everything_is_as_it_was() -> None:
    pixels, objects = scene()
    image, truth = augmented(0, PLAIN)
    assert np.array_equal(image.numpy() * 255, pixels.transpose(2, 0, 1).astype(np.float32))
    assert truth.boxes.tolist() == [list(map(float, box)) for box in BOXES]
    assert truth.labels.tolist() == [4, 5, 6]
    assert np.array_equal(truth.masks.numpy(), objects.masks())


def test_a_flip_mirrors_image_boxes_and_masks() -> None:
    plain = augmented(0, PLAIN)
    image, truth = augmented(0, PLAIN.model_copy(update={"flip": 1.0}))
    assert torch.equal(image, plain[0].flip(2))
    assert torch.equal(truth.masks, plain[1].masks.flip(2))
    assert truth.boxes.tolist() == [[WIDTH - x2, y1, WIDTH - x1, y2] for x1, y1, x2, y2 in BOXES]


def test_flips_and_crops_are_drawn_for_every_second_image() -> None:
    wide = [augmented(number)[1] for number in range(200)]
    assert 60 < sum(truth.size_hw in ((48, 64), (64, 85)) for truth in wide) < 140
    flips = [augmented(n, PLAIN.model_copy(update={"flip": 0.5}))[1] for n in range(200)]
    assert 70 < sum(float(truth.boxes[0, 0]) != 5 for truth in flips) < 130


def test_objects_outside_of_a_crop_are_dropped_and_crops_without_objects_stay() -> None:
    tight = SMALL.model_copy(update={"crop_range": (10, 12)})
    counts = [len(augmented(number, tight)[1].boxes) for number in range(120)]
    assert {0, 1, 3} <= set(counts)
    empty = augmented(counts.index(0), tight)
    assert empty[1].masks.shape == (0, *empty[0].shape[1:])
    assert empty[1].boxes.shape == (0, 4)


def test_crowds_are_not_learned() -> None:
    _, truth = augmented(0, PLAIN, 1)
    assert truth.labels.tolist() == [4, 6]
    assert len(truth.masks) == 2


@pytest.mark.parametrize("channels", [1, 7])
def test_any_number_of_channels_is_resized_and_normalised(channels: int) -> None:
    pixels, objects = scene()
    many = np.repeat(pixels[:, :, :1], channels, axis=2)
    data = DataConfig(channels=channels, mean=(0.5,), std=(0.25,))
    for number in range(6):
        image, _ = DetectAugment(SMALL, data)(many, objects, number)
        wanted, _ = augmented(number)
        torch.testing.assert_close(image, ((wanted[:1] - 0.5) / 0.25).expand(channels, -1, -1))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sizes": ()}, "no lengths"),
        ({"crop_sizes": (0, 3)}, "no lengths"),
        ({"crop_range": (5, 3)}, "reversed"),
        ({"longest": 700}, "raise longest"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        DetectAugmentConfig(**wrong)
