"""Duplicates and leakage: pictures that come twice, and pictures of val that are in train."""

from collections.abc import Sequence
from dataclasses import dataclass

from attmask.audit.duplicates import groups_of_equals, groups_of_near
from attmask.audit.facts import PictureFacts


@dataclass(frozen=True)
class Duplicates:
    """Groups of places. A near group names one picture of each exact group in it."""

    exact: tuple[tuple[str, ...], ...]
    near: tuple[tuple[str, ...], ...]
    exact_surplus: int
    near_surplus: int
    """Pictures beyond the first of each group."""
    flat: int
    """Pictures too flat to be known again by their looks, left out of the near groups."""


@dataclass(frozen=True)
class Leak:
    """A picture of val and the one of train that it is, or looks like."""

    val: str
    train: str


@dataclass(frozen=True)
class Leakage:
    """Which pictures of val are in train; each picture of val is named once."""

    exact: tuple[Leak, ...]
    near: tuple[Leak, ...]


def duplicates(pictures: Sequence[PictureFacts]) -> Duplicates:
    """What comes twice among the readable pictures."""
    readable = [picture for picture in pictures if picture.looks is not None]
    exact = groups_of_equals([picture.digest for picture in readable])
    near = [group for group in _near_groups(readable) if len(group) > 1]
    return Duplicates(
        exact=tuple(tuple(readable[index].place for index in group) for group in exact),
        near=tuple(tuple(picture.place for picture in group) for group in near),
        exact_surplus=sum(len(group) - 1 for group in exact),
        near_surplus=sum(len(group) - 1 for group in near),
        flat=sum(picture.looks is not None and picture.looks.hash is None for picture in readable),
    )


def leakage(train: Sequence[PictureFacts], val: Sequence[PictureFacts]) -> Leakage:
    """The pictures of val whose bytes, or looks, are in train."""
    ours = {picture.digest: picture.place for picture in reversed(train) if picture.looks}
    theirs = [picture for picture in val if picture.looks is not None]
    exact = [p for p in theirs if p.digest in ours]
    rest = [p for p in theirs if p.digest not in ours]
    alike: dict[bytes | None, str] = {}
    for group in _near_groups([*(p for p in train if p.looks is not None), *rest]):
        source = next((picture.place for picture in group if picture.digest in ours), None)
        if source is not None:
            alike |= {picture.digest: source for picture in group}
    return Leakage(
        exact=tuple(Leak(p.place, ours[p.digest]) for p in exact),
        near=tuple(Leak(p.place, alike[p.digest]) for p in rest if p.digest in alike),
    )


def _near_groups(readable: Sequence[PictureFacts]) -> list[list[PictureFacts]]:
    """Pictures that look the same; of those that are the same, the first."""
    distinct = list({picture.digest: picture for picture in reversed(readable)}.values())[::-1]
    hashes = [picture.looks.hash if picture.looks else None for picture in distinct]
    return [[distinct[index] for index in group] for group in groups_of_near(hashes)]
