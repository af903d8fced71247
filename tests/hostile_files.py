"""Weights files that do harm: code in the pickle, more declared than stored, archives that grow."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

Make = Callable[[Path], object]
"""Writes a file to a path."""


def weights(**replaced: Tensor | None) -> dict[str, Tensor]:
    """The weights of a small network, with some replaced or, where None, left out."""
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=32, patch_size=8, embed_dim=64, depth=2, num_heads=1, num_classes=0
    )
    names = {name.replace("__", "."): tensor for name, tensor in replaced.items()}
    everything: dict[str, Tensor | None] = {**vit.state_dict(), **names}
    return {name: tensor for name, tensor in everything.items() if tensor is not None}


class Command:
    """Runs a command of the shell when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch '{self.marker}'",)


class Program(Command):
    """Runs Python when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (f"open({str(self.marker)!r}, 'w')",)


class Method(Command):
    """Calls a method of a harmless object."""

    def __reduce__(self) -> tuple[Any, ...]:
        return self.marker.touch, ()


class Late(Command):
    """Runs a command when its state is set, after it was made."""

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (), Command(self.marker)


PAYLOADS = (Command, Program, Method, Late)
WHERE: dict[str, Callable[[Any], Any]] = {
    "alone": lambda payload: payload,
    "beside the weights": lambda payload: {"model": weights(), "args": payload},
    "among the weights": lambda payload: {"state_dict": {**weights(), "x": payload}},
    "as a key": lambda payload: {"model": {**weights(), (payload,): 1}},
    "in an array": lambda payload: {"model": np.array([payload], dtype=object)},
}


def write_pickle(path: Path, content: object, kind: str) -> None:
    """Write a pickle in PyTorch's format, in that before version 1.6, or bare."""
    if kind == "bare":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind == "zip")


def torch_file(content: object) -> Make:
    return lambda path: torch.save(content, path)


def safetensors_file(header: object, data: bytes = b"", length: int | None = None) -> Make:
    """A safetensors file whose header says anything."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    return lambda path: path.write_bytes(struct.pack("<Q", length) + text + data)


def of_dtype(dtype: torch.dtype) -> Make:
    """A network with one tensor in another number format."""
    content = weights(norm__weight=torch.ones(64).to(dtype))
    return lambda path: (save_file if path.suffix == ".safetensors" else torch.save)(content, path)


def one_tensor(shape: list[int], end: int, dtype: str = "F32") -> dict[str, Any]:
    return {"cls_token": {"dtype": dtype, "shape": shape, "data_offsets": [0, end]}}


def metadata(**noted: str) -> Make:
    return lambda path: save_file(weights(), path, metadata=noted)


def expanded(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """One number that is declared as many."""
    return torch.zeros(1, dtype=dtype).as_strided(shape, (0,) * len(shape))


def declaring_more(path: Path, *, is_zip: bool) -> None:
    """A tensor that declares 2**31 numbers of which a few are stored."""
    buffer = io.BytesIO()
    stored = 70007
    torch.save({"a": torch.ones(stored)}, buffer, _use_new_zipfile_serialization=is_zip)
    few, many = struct.pack("<i", stored), struct.pack("<i", 2**31 - 1)
    assert few in buffer.getvalue()
    path.write_bytes(buffer.getvalue().replace(few, many))


def bomb(path: Path) -> None:
    """An archive of half a megabyte that unpacks to half a gigabyte."""
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(4)}, buffer)
    with zipfile.ZipFile(buffer) as small, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as big:
        for name in small.namelist():
            with big.open(name, "w") as entry:
                entry.write(small.read(name))
                for _ in range(512 if name.endswith("data/0") else 0):
                    entry.write(bytes(2**20))


def claiming(path: Path) -> None:
    """An archive with an entry that claims to be four gigabytes large."""
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(70007)}, buffer)
    size = struct.pack("<I", 4 * 70007)
    path.write_bytes(buffer.getvalue().replace(size, struct.pack("<I", 2**32 - 2)))


def torchscript(path: Path) -> None:
    """A program of TorchScript."""
    torch.jit.script(nn.Linear(2, 2)).save(str(path))
