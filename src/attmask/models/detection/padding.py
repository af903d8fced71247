"""Images of several sizes in one tensor."""

import math
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

_COARSEST_STRIDE = 32
"""Of the feature pyramid, in pixels."""


def padded(images: Sequence[Float[Tensor, "C _ _"]], patch_size: int) -> Float[Tensor, "B C H W"]:
    """The images in one tensor, with zeros at the right and at the bottom.

    Its sides are multiples of the coarsest stride and of the patch size.
    """
    multiple = math.lcm(_COARSEST_STRIDE, patch_size)
    height, width = (
        -(-max(image.shape[axis] for image in images) // multiple) * multiple for axis in (1, 2)
    )
    together = images[0].new_zeros(len(images), images[0].shape[0], height, width)
    for place, image in zip(together, images, strict=True):
        place[:, : image.shape[1], : image.shape[2]] = image
    return together
