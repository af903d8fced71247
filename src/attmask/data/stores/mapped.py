"""Memory-mapped arrays, shared by all processes and pickled by their file and offset."""

import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.lib import format as npy

from attmask import atomic

_LOCAL_HEADER = 30  # bytes of a zip member's own header before its name and extra field


@runtime_checkable
class _Readable(Protocol):
    """A file, or a member of an archive."""

    def read(self, size: int = ..., /) -> bytes: ...


@dataclass(frozen=True)
class Spot:
    """The location of an array in a file, and the stamp of the file."""

    file: Path
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    size: int
    mtime_ns: int


class Mapped(np.memmap[Any, Any]):
    """A read-only array in a file; what is cut or computed from it pickles as any other array."""

    spot: Spot | None

    def __array_finalize__(self, origin: Any) -> None:
        """A view loses the location in the file."""
        super().__array_finalize__(origin)
        self.spot = None

    def __reduce__(self) -> Any:
        """Pickle the location: a worker maps the same file instead of getting a copy."""
        if self.spot is None:
            return np.asarray(self).__reduce__()
        return _open_spot, (self.spot,)


def map_npy(file: Path) -> np.ndarray:
    """The array of a `.npy` file, mapped; ValueError where it is none, or holds objects."""
    with file.open("rb") as opened:
        shape, fortran_order, dtype = _read_header(opened)
        return map_array(file, opened.tell(), shape, dtype, fortran_order=fortran_order)


def npz_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The names and shapes of the arrays in a `.npz` file, read from their headers."""
    shapes = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as opened:
                    shapes[member.removesuffix(".npy")] = _read_header(opened)[0]
    return shapes


def map_npz(file: Path, name: str) -> np.ndarray:
    """One array of a `.npz` file: mapped where it is stored as it is, loaded where compressed."""
    with zipfile.ZipFile(file) as archive:
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as opened:
            shape, fortran_order, dtype = _read_header(opened)
            if info.compress_type != zipfile.ZIP_STORED:
                opened.seek(0)
                return np.asarray(npy.read_array(opened, allow_pickle=False))
            header = opened.tell()
    with file.open("rb") as raw:
        raw.seek(info.header_offset)
        name_bytes, extra_bytes = struct.unpack("<26xHH", raw.read(_LOCAL_HEADER))
    offset = info.header_offset + _LOCAL_HEADER + name_bytes + extra_bytes + header
    return map_array(file, offset, shape, dtype, fortran_order=fortran_order)


def save_npz(file: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a `.npz` file that `map_npz` can map; whole or not at all."""
    with atomic.file(file) as beside, zipfile.ZipFile(beside, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)


def _read_header(opened: _Readable) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(opened)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran_order, dtype = read(opened)
    return shape, fortran_order, dtype


def map_array(
    file: Path,
    offset: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    *,
    fortran_order: bool = False,
) -> np.ndarray:
    """The numbers that begin at an offset in a file, mapped; ValueError where these are objects."""
    if dtype.hasobject:
        raise ValueError("it holds Python objects, not numbers")
    status = file.stat()
    spot = Spot(
        file=file.absolute(),
        offset=offset,
        dtype=dtype,
        shape=shape,
        fortran_order=fortran_order,
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
    )
    return _open_spot(spot)


def _open_spot(spot: Spot) -> np.ndarray:
    status = spot.file.stat()
    if (status.st_size, status.st_mtime_ns) != (spot.size, spot.mtime_ns):
        raise OSError(f"{spot.file} was changed while it was read")
    if 0 in spot.shape:  # nothing to map
        return np.empty(spot.shape, dtype=spot.dtype)
    mapped: Mapped = Mapped(
        spot.file,
        dtype=spot.dtype,
        mode="r",
        offset=spot.offset,
        shape=spot.shape,
        order="F" if spot.fortran_order else "C",
    )
    mapped.spot = spot
    return mapped
