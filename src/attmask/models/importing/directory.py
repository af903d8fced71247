"""Directories of Hugging Face on disk: config.json, preprocessor_config.json and the weights."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from attmask.errors import UserError
from attmask.models.weights_file import StoredWeights, name_of, read_weights
from attmask.reading import MOST_BYTES, read_regular

CONFIG = "config.json"
_PREPROCESSOR = "preprocessor_config.json"
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def is_directory_of_weights(path: Path) -> bool:
    """Whether a folder is one that transformers or timm has saved, and no run of ours."""
    return (path / CONFIG).is_file() and not (path / "config.yaml").exists()


def read_config(folder: Path) -> dict[str, Any]:
    """The content of config.json."""
    return _read_json(folder / CONFIG)


def read_preprocessor(folder: Path) -> dict[str, Any]:
    """The content of preprocessor_config.json; empty where there is none."""
    path = folder / _PREPROCESSOR
    return _read_json(path) if path.is_file() else {}


def read_folder(folder: Path) -> StoredWeights:
    """All tensors of a folder, from one file or from the files that an index names."""
    whole = next((folder / name for name in _WHOLE if (folder / name).is_file()), None)
    if whole is not None:
        return read_weights(whole)
    index = next((folder / name for name in _INDEX if (folder / name).is_file()), None)
    if index is None:
        raise UserError(
            f"{folder} has {CONFIG}, but no weights; wanted {' or '.join(_WHOLE)}, or several "
            "files with their index"
        )
    shards = _read_json(index).get("weight_map")
    if not isinstance(shards, Mapping) or not shards:
        raise UserError(f"{index} names no files; download it again")
    tensors: dict[str, Tensor] = {}
    stored: StoredWeights | None = None
    for file in sorted(map(str, set(map(str, shards.values())))):
        if Path(file).name != file:
            raise UserError(f"{index} names {name_of(file)}, which is not a file beside it")
        stored = read_weights(folder / file)
        tensors |= stored.tensors
    assert stored is not None
    lacking = [name for name in shards if name not in tensors]
    if lacking:
        raise UserError(
            f"{folder} lacks {name_of(str(lacking[0]))}, which {index.name} names; download it "
            "again"
        )
    return replace(stored, tensors=tensors, beside=())


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_regular(path, MOST_BYTES))
    except (OSError, ValueError, RecursionError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not JSON"
        raise UserError(f"{path} cannot be read: {why}; download it again") from fault
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a JSON object; download it again")
    return content
