"""Read a file of weights from anywhere: nothing in it runs, and it takes no more than its size."""

import argparse
import math
import pickle
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from attmask.errors import UserError
from attmask.models.positions import Resize

ENDINGS = (".safetensors", ".pth", ".pt", ".bin")
WANTED = "wanted a plain ViT in timm's names: cls_token, pos_embed, patch_embed.*, blocks.*, norm.*"
_WRAPPERS = ("teacher", "state_dict", "model")  # the teacher where there is one
_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
_LONGEST_NAME = 60
_MOST_HEADS = 2**16


@dataclass(frozen=True)
class StoredWeights:
    """The tensors of a file by name, and what it says of heads and positions."""

    tensors: Mapping[str, Tensor]
    heads: int | None
    positions: Resize | None
    beside: tuple[str, ...] = ()
    """Other entries of the file, which are not read: a student, an optimizer."""


def read_weights(path: Path) -> StoredWeights:
    """The tensors of a file, of the teacher where there is one; nothing in it is executed."""
    if not path.is_file():
        found = f"{path} is not a file" if path.exists() else f"there is no file {path}"
        raise UserError(f"{found}; give a {', '.join(ENDINGS)} file")
    if path.suffix == ".safetensors":
        return _safetensors(path)
    return _unwrapped(path, read_pickled(path))


def _safetensors(path: Path) -> StoredWeights:
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in sorted(file.keys())}
            noted = file.metadata() or {}
    except PermissionError as fault:
        raise _unreadable(path) from fault
    except (SafetensorError, OSError, MemoryError) as fault:
        raise UserError(
            f"{path} is damaged or not a safetensors file; download it again"
        ) from fault
    return StoredWeights(
        tensors,
        _stated_heads(path, noted.get("heads")),
        _stated_resize(path, noted.get("positions")),
    )


def read_pickled(path: Path) -> object:
    """The content of a file of torch.save: tensors, plain values, and arguments of a command line.

    Anything else could run code when it is read, and is refused before it does.
    """
    try:
        _refuse_archives_of_others(path)
        # Checkpoints of DINO and its descendants hold their command line, which is harmless.
        with (
            torch.serialization.safe_globals([argparse.Namespace]),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # of what is refused or checked below
            return torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except PermissionError as fault:
        raise _unreadable(path) from fault
    except pickle.UnpicklingError as fault:
        raise UserError(
            f"{path} holds more than tensors, which could run any code, or is damaged; "
            "save only its state_dict, preferably as .safetensors"
        ) from fault
    except Exception as fault:  # a damaged pickle can raise anything
        raise UserError(
            f"{path} is damaged or not a PyTorch checkpoint; download it again"
        ) from fault


def _unreadable(path: Path) -> UserError:
    return UserError(f"{path} may not be read; change its permissions")


def _refuse_archives_of_others(path: Path) -> None:
    """Raise an error for archives that PyTorch does not save: compressed or overlapping ones may
    unpack to any size, and those of TorchScript are programs."""
    if not zipfile.is_zipfile(path):
        return  # the format before PyTorch 1.6
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if any(entry.filename.endswith("/constants.pkl") for entry in entries):
        raise UserError(
            f"{path} is a program of TorchScript, which could run any code; save only the "
            "state_dict of the network, preferably as .safetensors"
        )
    is_compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    if is_compressed or sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise UserError(
            f"{path} is a compressed archive, which may unpack to any size; save the state_dict "
            "with torch.save, or as .safetensors"
        )


def _unwrapped(path: Path, content: object) -> StoredWeights:
    heads: int | None = None
    positions: Resize | None = None
    beside: list[str] = []
    seen: set[int] = set()
    while isinstance(content, Mapping) and id(content) not in seen:
        seen.add(id(content))
        tensors = {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, Tensor)}
        heads = _stated_heads(path, content.get("heads")) or heads
        positions = _stated_resize(path, content.get("positions")) or positions
        inner = next((w for w in _WRAPPERS if isinstance(content.get(w), Mapping)), None)
        if inner is None and tensors:
            return StoredWeights(tensors, heads, positions, tuple(beside))
        if inner is None:
            break
        beside += [str(name) for name in content if name != inner]
        content = content[inner]
    found = listed(map(str, content)) if isinstance(content, Mapping) else type(content).__name__
    raise UserError(f"{path} has no weights: found {found}; {WANTED}")


def _stated_heads(path: Path, stated: object) -> int | None:
    """The entry `heads` of a file: a number, or a text in safetensors."""
    if isinstance(stated, str) and stated.isdecimal() and len(stated) <= len(str(_MOST_HEADS)):
        stated = int(stated)
    if isinstance(stated, bool) or not isinstance(stated, int | str):
        return None
    if isinstance(stated, str) or not 1 <= stated <= _MOST_HEADS:
        shown = name_of(stated) if isinstance(stated, str) else f"{float(min(stated, 1e300)):g}"
        raise UserError(
            f"{path} says heads={shown}; wanted a number of heads, such as 6: save it again, or "
            "without this entry"
        )
    return stated


def _stated_resize(path: Path, stated: object) -> Resize | None:
    """The entry `positions` of a file."""
    known: dict[str, Resize] = {name: name for name in get_args(Resize)}
    if not isinstance(stated, str):
        return None
    if stated in known:
        return known[stated]
    shown = name_of(stated)
    raise UserError(f"{path} says positions={shown}; wanted {' or '.join(get_args(Resize))}")


def refuse_unusable(origin: object, tensors: Mapping[str, Tensor]) -> None:
    """Raise an error for a tensor that does not hold real numbers, one for each element.

    No number is read: a tensor may say that it has more of them than any memory holds.
    """
    for name, tensor in tensors.items():
        is_plain = tensor.layout == torch.strided and tensor.device.type == "cpu"
        if not is_plain or tensor.is_nested or tensor.dtype not in _DTYPES:
            kind = str(tensor.dtype if is_plain else tensor.layout).removeprefix("torch.")
            kind += "" if tensor.device.type == "cpu" else f" on {tensor.device.type}"
            raise UserError(
                f"{origin} holds {name_of(name)} as {kind}; wanted dense weights in fp32, fp16 or "
                "bf16: convert it"
            )
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise UserError(
                f"{origin} declares {name_of(name)} of shape {tuple(tensor.shape)} but stores "
                "less; save its state_dict again"
            )


def refuse_not_finite(origin: object, tensors: Mapping[str, Tensor]) -> None:
    """Raise an error that names the first tensor with a NaN or an infinite value."""
    for name, tensor in tensors.items():
        # The extremes need no copy, and a NaN is both of them.
        ends = tensor.aminmax() if tensor.numel() else ()
        if not all(math.isfinite(float(end)) for end in ends):
            raise UserError(
                f"{origin} has NaN or infinite values in {name_of(name)}: its training diverged "
                "or the file is damaged; use another checkpoint"
            )


def name_of(name: str) -> str:
    """A name that a file gave, as part of one line: printable and not too long."""
    shown = name if name.isprintable() else repr(name)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 3]}..."


def listed(names: Iterable[str], most: int = 4) -> str:
    """List the first names and the number of the others."""
    names = list(map(name_of, names))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "nothing"
