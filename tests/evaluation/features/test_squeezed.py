import numpy as np
import torch

from attmask.evaluation.features.crops import Crop, resized
from attmask.evaluation.features.squeezed import Squeezed


def test_the_whole_image_becomes_a_square() -> None:
    crop = Squeezed(16)
    assert isinstance(crop, Crop)
    assert crop.size_hw == (16, 16)
    image = np.zeros((20, 60, 3), np.uint8)
    image[:, :30] = 200
    shown = crop(image, 0)
    assert shown.shape == (3, 16, 16)
    assert torch.equal(shown, resized(image, (16, 16)))
    assert bool((shown[:, :, :7] == 200).all())
    assert bool((shown[:, :, 9:] == 0).all()), "the right border of a wide image is still seen"


def test_crops_of_another_size_have_another_description() -> None:
    assert Squeezed(16).describe() == {"crop": "squeezed", "size": 16}
