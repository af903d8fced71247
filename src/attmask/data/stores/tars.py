"""The pictures of one tar file with their offsets and labels."""

import json
import logging
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from attmask.data.pictures.endings import ending_of, picture_endings
from attmask.data.stores.splits import SIDE_FOLDERS
from attmask.errors import UserError
from attmask.wording import counted

log = logging.getLogger(__name__)

RAW_ENDING = ".img"  # WebDataset's own, for a picture of any format
BLOCK = 512
"""Bytes: every header and every member begins at a multiple."""
# Where a header has what.
_NAME, _SIZE, _CHECKSUM, _PREFIX = slice(100), slice(124, 136), slice(148, 156), slice(345, 500)
_REGULAR = (b"0", b"\0")
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


class _Member(NamedTuple):
    """A regular file in a tar."""

    name: str
    offset_data: int
    size: int

    @property
    def end(self) -> int:
        """Where the next header is."""
        return self.offset_data + -(-self.size // BLOCK) * BLOCK


class _Headers(tarfile.TarFile):
    """A tar file whose list of headers, which it keeps for random access, can be emptied."""

    members: list[tarfile.TarInfo]
    firstmember: tarfile.TarInfo | None


def _plain_member(header: bytes, offset: int) -> _Member | None:
    """The regular file of a plain header, which `tarfile` reads too, but several times slower.

    None if there is anything else: long names, links, sparse files, folders, damage, the end.
    """
    if len(header) < BLOCK or header[156:157] not in _REGULAR or header[257:262] != b"ustar":
        return None
    try:
        size, checksum = (int(header[at].rstrip(b"\0 "), 8) for at in (_SIZE, _CHECKSUM))
    except ValueError:
        return None
    if size < 0 or sum(header) - sum(header[_CHECKSUM]) + 8 * ord(" ") != checksum:
        return None
    name, prefix = (header[at].partition(b"\0")[0] for at in (_NAME, _PREFIX))
    # GNU's own format has other things in place of the prefix.
    if name.endswith(b"/") or (prefix and header[257:265] != b"ustar\00000"):
        return None
    whole = (prefix + b"/" + name if prefix else name).decode("utf-8", "surrogateescape")
    return _Member(whole, offset + BLOCK, size)


def _members(file: Path, raw: IO[bytes]) -> Iterator[_Member]:
    """The complete regular files of a tar, read from the headers only."""
    length, end, links = file.stat().st_size, 0, 0
    try:
        with _Headers.open(fileobj=raw, mode="r:") as archive:
            while True:
                # A global header may rename all that follows.
                plain = None if archive.pax_headers else _plain_member(_header(raw, end), end)
                if plain is not None:
                    archive.firstmember, end = None, plain.end
                    if plain.offset_data + plain.size > length:
                        raise tarfile.ReadError("unexpected end of data")
                    yield plain
                    continue
                if end:
                    archive.offset = end
                if (member := archive.next()) is None:
                    break
                end = archive.offset
                archive.members.clear()  # a tar of a million files would keep a million headers
                if member.offset_data + member.size > length:
                    raise tarfile.ReadError("unexpected end of data")
                if member.isreg() and not member.issparse():
                    yield _Member(member.name, member.offset_data, member.size)
                links += member.islnk() or member.issym()
        if any(os.pread(raw.fileno(), BLOCK, end)):
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


def _header(raw: IO[bytes], offset: int) -> bytes:
    return os.pread(raw.fileno(), BLOCK, offset)


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
