"""CIFAR and Flowers-102 with a few made-up images, in exactly the layout that is published."""

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from tests.sources import png

TEN = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def python2_pickle(value: object) -> bytes:
    """Protocol 2 as cPickle of Python 2 wrote it: str as bytes, arrays with numpy.core's names."""
    return b"\x80\x02" + _pickled(value) + b"."


def _pickled(value: Any) -> bytes:
    if isinstance(value, bytes):
        short = len(value) < 256
        return (
            b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))
        ) + value
    if isinstance(value, bool):
        return b"\x88" if value else b"\x89"
    if isinstance(value, int):
        return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)
    if value is None:
        return b"N"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(_pickled, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(_pickled, value)) + b"e"
    if isinstance(value, dict):
        pairs = (_pickled(key) + _pickled(entry) for key, entry in value.items())
        return b"}(" + b"".join(pairs) + b"u"
    assert isinstance(value, np.ndarray)
    kind = b"cnumpy\ndtype\n" + _pickled((value.dtype.str.lstrip("|<>").encode(), 0, 1)) + b"R"
    kind += _pickled((3, b"|", None, None, None, -1, -1, 0)) + b"b"
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + _pickled((0,))
    state = b"(" + _pickled(1) + _pickled(value.shape) + kind + b"\x89" + _pickled(value.tobytes())
    return made + _pickled(b"b") + b"tR" + state + b"tb"


def pictures(count: int, seed: int = 0) -> np.ndarray:
    """Rows of 3072 bytes: the red plane, the green one, the blue one."""
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def write_cifar10(folder: Path, rows: int = 4) -> dict[str, tuple[np.ndarray, list[int]]]:
    """Five batches and the test batch; returns the rows and labels of each file."""
    written = {}
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        labels = [(number + row) % 10 for row in range(rows)]
        written[name] = pictures(rows, seed=number), labels
        entries = {
            b"batch_label": f"training batch {number + 1} of 5".encode(),
            b"labels": labels,
            b"data": written[name][0],
            b"filenames": [f"image_s_{row:06d}.png".encode() for row in range(rows)],
        }
        _write(folder / name, python2_pickle(entries))
    names = {b"num_cases_per_batch": rows, b"label_names": [n.encode() for n in TEN]}
    _write(folder / "batches.meta", python2_pickle({**names, b"num_vis": 3072}))
    return written


def write_cifar100(folder: Path, rows: int = 6) -> dict[str, tuple[np.ndarray, list[int]]]:
    """The files train, test and meta, with coarse labels beside the fine ones."""
    written = {}
    for name in ("train", "test"):
        labels = [(17 * row) % 100 for row in range(rows)]
        written[name] = pictures(rows, seed=len(name)), labels
        entries = {
            b"filenames": [f"x_s_{row}.png".encode() for row in range(rows)],
            b"batch_label": b"training batch 1 of 1",
            b"fine_labels": labels,
            b"coarse_labels": [label // 5 for label in labels],
            b"data": written[name][0],
        }
        _write(folder / name, python2_pickle(entries))
    fine = [f"kind {number:03d}".encode() for number in range(100)]
    coarse = [f"group {number}".encode() for number in range(20)]
    _write(
        folder / "meta",
        python2_pickle({b"fine_label_names": fine, b"coarse_label_names": coarse}),
    )
    return written


def write_binary(
    folder: Path,
    written: Mapping[str, tuple[np.ndarray, list[int]]],
    names: Sequence[str],
    meta: str,
) -> None:
    """The same images in the binary version, with a coarse label of 0 if there are 100 classes."""
    for name, (rows, labels) in written.items():
        coarse = b"\0" if len(names) > 10 else b""
        records = (coarse + bytes([n]) + row.tobytes() for row, n in zip(rows, labels, strict=True))
        _write(folder / f"{name}.bin", b"".join(records))
    _write(folder / meta, ("\n".join(names) + "\n\n").encode())


def write_flowers(folder: Path, labels: Sequence[int], splits: Mapping[str, Sequence[int]]) -> Path:
    """`jpg/` with an image of one shade each, and both lists."""
    for number in range(1, len(labels) + 1):
        _write(folder / "jpg" / f"image_{number:05d}.jpg", png(number))
    savemat(folder / "imagelabels.mat", {"labels": np.array([labels], dtype=np.uint8)})
    ids = {key: np.array([numbers], dtype=np.uint16) for key, numbers in splits.items()}
    savemat(folder / "setid.mat", ids)
    return folder


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
