"""The pictures of one tar file with their offsets and labels."""

import json
import logging
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from attmask.data.pictures.endings import ending_of, picture_endings
from attmask.data.stores.splits import SIDE_FOLDERS
from attmask.errors import UserError
from attmask.wording import counted

log = logging.getLogger(__name__)

RAW_ENDING = ".img"  # WebDataset's own, for a picture of any format
_BLOCK = 512  # bytes: every header and every member begins at a multiple
_LARGEST_LABEL = 10_000_000  # bytes; a .json may hold much besides


@dataclass(frozen=True)
class Sample:
    """One picture: the member's name and place, and what its class is called."""

    name: str
    offset: int
    size: int
    label: str | None = None


@dataclass
class _Group:
    """The members that share a stem."""

    exact: list[Sample] = field(default_factory=list)
    longer: list[Sample] = field(default_factory=list)
    label: str | None = None

    def pictures(self) -> list[Sample]:
        """`7.jpg` is the picture where it lies beside `7.depth.png`; else each is its own."""
        chosen = self.exact[:1] or self.longer
        return [Sample(one.name, one.offset, one.size, self.label) for one in chosen]


def read_samples(file: Path, skipped: Counter[str] | None = None) -> Iterator[Sample]:
    """The pictures of a tar in file order; of a damaged one, those before the damage.

    What is neither picture nor label is counted in `skipped` by its ending.
    """
    group, stem = _Group(), None
    endings = (*picture_endings(), RAW_ENDING)
    with file.open("rb") as raw:
        for member in _members(file, raw):
            name = member.name.removeprefix("./")
            where, _, base = name.rpartition("/")
            if base.startswith(".") or where.startswith("__MACOSX"):
                continue
            first, dot, ending = base.partition(".")
            if (where, first) != stem:
                yield from group.pictures()
                group, stem = _Group(), (where, first)
            ending = (dot + ending).lower()
            if ending.endswith(endings):
                sample = Sample(name, member.offset_data, member.size)
                (group.exact if ending in endings else group.longer).append(sample)
            elif ending in (".cls", ".json") and member.size <= _LARGEST_LABEL:
                text = os.pread(raw.fileno(), member.size, member.offset_data)
                group.label = _label(ending, text, f"{file}/{name}") or group.label
            elif skipped is not None and name.split("/", 1)[0].lower() not in SIDE_FOLDERS:
                skipped[ending_of(os.fsencode(name))] += 1
    yield from group.pictures()


class _Headers(tarfile.TarFile):
    """A tar file whose list of headers, which it keeps for random access, can be emptied."""

    members: list[tarfile.TarInfo]


def _members(file: Path, raw: IO[bytes]) -> Iterator[tarfile.TarInfo]:
    """The complete regular files of a tar, read from the headers only."""
    length, end, links = file.stat().st_size, 0, 0
    try:
        with _Headers.open(fileobj=raw, mode="r:") as archive:
            while (member := archive.next()) is not None:
                end = member.offset_data + -(-member.size // _BLOCK) * _BLOCK
                archive.members.clear()  # a tar of a million files would keep a million headers
                if member.offset_data + member.size > length:
                    raise tarfile.ReadError("unexpected end of data")
                if member.isreg() and not member.issparse():
                    yield member
                links += member.islnk() or member.issym()
        if any(os.pread(raw.fileno(), _BLOCK, end)):
            raise tarfile.ReadError("no header where one should be")
    except tarfile.TarError as fault:
        if end == 0:
            raise UserError(
                f"{file} is not a plain tar file ({fault}); unpack or make it again"
            ) from fault
        log.warning("%s is damaged (%s): only the samples before are used", file, fault)
    if links:
        log.warning(
            "%s has %s, left out of the images: pack the files themselves",
            file,
            counted(links, "link"),
        )


def _label(ending: str, text: bytes, name: str) -> str | None:
    """The label in a `.cls` file, or under `label` in a `.json` file."""
    try:
        if ending == ".cls":
            return text.decode().strip()
        found = json.loads(text)
    except ValueError as fault:
        raise UserError(f"{name} cannot be read as a label: {fault}; repair the shard") from fault
    label = found.get("label") if isinstance(found, dict) else None
    return None if label is None else str(label)
