"""The files that features are written to: .npy, .safetensors and .parquet, block after block.

features.npy             rows x D               features.npy.csv           name, split, label, class
features.safetensors     features, labels       features.safetensors.csv   the same
features.parquet         name, split, label, class, feature
"""

import csv
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from attmask import atomic
from attmask.embedding.file import beside
from attmask.embedding.joined import BYTES, DType, Joined
from attmask.errors import UserError

METADATA = "attmask"
"""The key of the description in the metadata of .safetensors and .parquet files."""
_ALIGNED = 8
_DESCR = {"float32": "<f4", "float16": "<f2"}
_SAFETENSORS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}

Write = Callable[[Path, Joined, Mapping[str, Any]], None]


def write_npy(file: Path, joined: Joined, described: Mapping[str, Any]) -> None:
    """One array, rows first."""
    header = {
        "descr": _DESCR[joined.dtype],
        "fortran_order": False,
        "shape": (joined.rows, *joined.shape),
    }
    with file.open("wb") as opened:
        np.lib.format.write_array_header_1_0(opened, header)
        for block in joined.blocks():
            opened.write(_little(block.features))


def write_safetensors(file: Path, joined: Joined, described: Mapping[str, Any]) -> None:
    """The tensors `features` and, if there are labels, `labels`.

    Written by hand, because the library needs all tensors in memory at once. Labels come first in
    the file, where their eight bytes are aligned.
    """
    size = joined.rows * BYTES[joined.dtype] * math.prod(joined.shape)
    header: dict[str, Any] = {
        "__metadata__": {METADATA: json.dumps(described)},
        "features": {
            "dtype": _SAFETENSORS[joined.dtype],
            "shape": [joined.rows, *joined.shape],
            "data_offsets": [0, size],
        },
    }
    if joined.images.has_labels:
        labels = 8 * joined.rows
        header["labels"] = {"dtype": "I64", "shape": [joined.rows], "data_offsets": [0, labels]}
        header["features"]["data_offsets"] = [labels, labels + size]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNED)
    with file.open("wb") as opened:
        opened.write(len(text).to_bytes(8, "little") + text)
        if joined.images.has_labels:
            for block in joined.blocks():
                opened.write(_little(block.labels))
        for block in joined.blocks():
            opened.write(_little(block.features))


def write_parquet(file: Path, joined: Joined, described: Mapping[str, Any]) -> None:
    """One row an image; the features of an image are a list of fixed length."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = {"float32": pa.float32(), "float16": pa.float16()}[joined.dtype]
    width = math.prod(joined.shape)
    columns = [("name", pa.string()), ("split", pa.string())]
    if joined.images.has_labels:
        columns += [("label", pa.int64()), ("class", pa.string())]
    schema = pa.schema(
        [*columns, ("feature", pa.list_(number, width))],
        metadata={METADATA: json.dumps(described)},
    )
    with pq.ParquetWriter(file, schema, use_dictionary=["split", "class"]) as writer:
        for block in joined.blocks():
            entries = block.entries
            arrays = {
                "name": pa.array([printable(entry.name) for entry in entries]),
                "split": pa.array([entry.split for entry in entries]),
                "label": pa.array([entry.label for entry in entries], type=pa.int64()),
                "class": pa.array([entry.class_name for entry in entries], type=pa.string()),
                "feature": pa.FixedSizeListArray.from_arrays(
                    pa.array(block.features.reshape(-1)), width
                ),
            }
            table = pa.Table.from_arrays([arrays[name] for name in schema.names], schema=schema)
            writer.write_table(table, row_group_size=len(entries))


def write_names(file: Path, joined: Joined) -> None:
    """A line for each row of the features: name, split and, if there are labels, label and class.

    Names that are not Unicode have the bytes that are not as escapes.
    """
    columns = ["name", "split", *(["label", "class"] if joined.images.has_labels else [])]
    with file.open("w", encoding="utf-8", newline="") as opened:
        lines = csv.writer(opened, lineterminator="\n")
        lines.writerow(columns)
        for block in joined.blocks():
            for entry in block.entries:
                shown = ["" if value is None else printable(str(value)) for value in entry]
                lines.writerow(shown[: len(columns)])


def printable(text: str) -> str:
    """A text as UTF-8 can hold it: undecodable bytes of a file name become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _little(values: np.ndarray) -> memoryview:
    """The bytes of an array in the order that both formats have."""
    return np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<")).data.cast("B")


@dataclass(frozen=True)
class Format:
    """How a kind of file is written."""

    write: Write
    dtypes: tuple[DType, ...]
    names_beside: bool
    """Whether names and labels are in a file of their own."""


FORMATS: dict[str, Format] = {
    ".npy": Format(write_npy, ("float32", "float16"), True),
    ".parquet": Format(write_parquet, ("float32", "float16"), False),
    ".safetensors": Format(write_safetensors, ("float32", "float16", "bfloat16"), True),
}


def find_format(out: Path, dtype: DType) -> Format:
    """The format of a file by its ending, if it can hold these numbers."""
    known = FORMATS.get(out.suffix)
    if known is None:
        raise UserError(f"--out {out} has an unknown ending; use {', '.join(FORMATS)}")
    if dtype not in known.dtypes:
        raise UserError(
            f"{out.suffix} cannot hold {dtype}; use {' or '.join(known.dtypes)}, or .safetensors"
        )
    if out.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as missing:
            raise UserError(
                f"{out} needs pyarrow to be written; run: pip install 'attmask[parquet]'"
            ) from missing
    return known


def write_file(out: Path, form: Format, joined: Joined, described: Mapping[str, Any]) -> None:
    """Write the features, and names and labels beside them where the format has no room."""
    if form.names_beside:
        with atomic.file(beside(out, ".csv")) as part:
            write_names(part, joined)
    with atomic.file(out) as part:
        form.write(part, joined, described)
