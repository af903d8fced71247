"""Arrays and pictures as the page stores them: base64 of little-endian numbers, data URIs."""

import base64
import io
from typing import Any, Literal

import numpy as np
from PIL import Image

Dtype = Literal["f4", "i4", "i1", "u1", "bits"]
_STORED = {"f4": "<f4", "i4": "<i4", "i1": "i1", "u1": "u1"}


def encoded(values: np.ndarray, dtype: Dtype) -> dict[str, Any]:
    """An array with its type and shape; bits are packed over the last axis."""
    if dtype == "bits":
        stored = np.packbits(values.astype(bool), axis=-1)
    else:
        stored = np.ascontiguousarray(values.astype(_STORED[dtype]))
    data = base64.b64encode(stored.tobytes()).decode()
    return {"dtype": dtype, "shape": list(values.shape), "data": data}


def picture_uri(picture: Image.Image, *, quality: int = 82) -> str:
    """A picture that needs no file beside the page."""
    file = io.BytesIO()
    picture.save(file, "WEBP", quality=quality, method=4)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"
