"""The preprocessing of a network as a function."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from PIL import Image
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.decode import decode_picture
from attmask.errors import UserError
from attmask.evaluation.features.crops import crop_pixels
from attmask.evaluation.features.forward import normalise


@dataclass(frozen=True)
class Transform:
    """Decode, resize, centre crop and normalise, exactly as `evaluate` does."""

    image_size: int
    data: DataConfig

    def __call__(
        self, image: str | Path | Image.Image | np.ndarray
    ) -> Float[Tensor, "C height width"]:
        """The normalised crop of a file, a PIL image or an array H x W x C.

        Files are decoded as in `evaluate`, in any format and bit depth; PIL images are used as PIL
        decoded them.
        """
        if isinstance(image, str | Path):
            pixels = decode_picture(_bytes_of(image), str(image), self.data)
        else:
            pixels = decode_picture(image, "the image", self.data)
        crop = crop_pixels(pixels, self.image_size)
        return normalise(crop[None], self.data.mean, self.data.std)[0]


def _bytes_of(file: str | Path) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as fault:
        raise UserError(f"cannot read {file}: {fault.strerror or fault}; check the path") from fault
