"""Pictures on disk for the tests, in every form they may come in."""

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from attmask.data.source import Source
from attmask.data.stores.files import Files


def touch(root: Path, *names: str) -> Path:
    """Empty files."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return root


def png(shade: int, size: tuple[int, int] = (8, 6)) -> bytes:
    """A small picture of one shade."""
    written = io.BytesIO()
    Image.new("RGB", size, (shade, shade, shade)).save(written, "png")
    return written.getvalue()


def of_files(
    root: Path,
    names: Sequence[str],
    labels: Sequence[int] | None = None,
    classes: Sequence[str] = (),
) -> Source:
    """A source of files by their names."""
    numbers = None if labels is None else np.array(labels, dtype=np.int64)
    rows = np.arange(len(names), dtype=np.int64)
    return Source(root, Files(root, names), rows, numbers, classes)


def names(source: Source) -> list[str]:
    return [source.name(i) for i in range(len(source))]


def labels(source: Source) -> list[int] | None:
    return None if source.labels is None else source.labels.tolist()


def write_tar(file: Path, members: Mapping[str, bytes]) -> Path:
    """A plain tar with these members, in this order."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(file, "w") as archive:
        for name, data in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    return file
