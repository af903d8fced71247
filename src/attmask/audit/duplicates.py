"""Duplicates within the images, and leakage of train into val."""

from collections.abc import Sequence
from dataclasses import dataclass

from attmask.audit.crops import Thumbnails, confirmed, crop_links
from attmask.audit.facts import PictureFacts
from attmask.audit.links import Groups, Link, groups_of_equals, near_links

SAME_BYTES = "same bytes"


@dataclass(frozen=True)
class Duplicates:
    """Groups of places. A near group names one picture of each exact group in it."""

    exact: tuple[tuple[str, ...], ...]
    near: tuple[tuple[str, ...], ...]
    near_how: tuple[tuple[str, ...], ...]
    """How the pictures of each near group differ from its first: "looks the same", "flipped",
    "cropped" or "flipped and cropped"."""
    exact_surplus: int
    near_surplus: int
    """Pictures beyond the first of each group."""
    flat: int
    """Pictures with too little structure for a perceptual hash, left out of the near groups."""


@dataclass(frozen=True)
class Leak:
    """A picture of val and the one of train that it is, or looks like."""

    val: str
    train: str
    how: str
    """"same bytes", or as in `Duplicates.near_how`."""


@dataclass(frozen=True)
class Leakage:
    """Which pictures of val are in train; each picture of val is named once."""

    exact: tuple[Leak, ...]
    near: tuple[Leak, ...]


class Alike:
    """The readable pictures that differ in their bytes, joined where they look alike."""

    def __init__(self, pictures: Sequence[PictureFacts]) -> None:
        first = {picture.digest: picture for picture in reversed(pictures) if picture.looks}
        self.pictures = list(first.values())[::-1]
        self.number = {picture.digest: index for index, picture in enumerate(self.pictures)}
        looks = [picture.looks for picture in self.pictures]
        self.groups = Groups(len(looks))
        hashes = [look.hash if look else None for look in looks]
        flipped = [look.flipped_hash if look else None for look in looks]
        thumbnails = Thumbnails([look.thumbnail if look else None for look in looks])
        self.groups.join(confirmed(near_links(hashes, flipped), thumbnails))
        self.groups.join(crop_links(thumbnails, self.groups))


def duplicates(pictures: Sequence[PictureFacts], alike: Alike | None = None) -> Duplicates:
    """Find duplicates among the readable pictures; `alike` avoids a second search."""
    alike = alike or Alike(pictures)
    readable = [picture for picture in pictures if picture.looks is not None]
    exact = groups_of_equals([picture.digest for picture in readable])
    near = alike.groups.members()
    return Duplicates(
        exact=tuple(tuple(readable[index].place for index in group) for group in exact),
        near=tuple(tuple(alike.pictures[index].place for index in group) for group in near),
        near_how=tuple(_how_all(alike, group) for group in near),
        exact_surplus=sum(len(group) - 1 for group in exact),
        near_surplus=sum(len(group) - 1 for group in near),
        flat=sum(picture.looks is not None and picture.looks.hash is None for picture in readable),
    )


def leakage(
    train: Sequence[PictureFacts], val: Sequence[PictureFacts], alike: Alike | None = None
) -> Leakage:
    """The pictures of val whose bytes, or looks, are in train.

    `alike` avoids a second search; it may hold other pictures too.
    """
    alike = alike or Alike([*train, *val])
    ours: dict[bytes | None, str] = {}
    source: dict[int, bytes | None] = {}  # of each group, the first picture of train
    for picture in train:
        if picture.looks is not None:
            ours.setdefault(picture.digest, picture.place)
            source.setdefault(alike.groups.root(alike.number[picture.digest]), picture.digest)
    theirs = [picture for picture in val if picture.looks is not None]
    seen: dict[int, dict[int, Link]] = {}
    near: list[Leak] = []
    for picture in theirs:
        here = alike.number[picture.digest]
        root = alike.groups.root(here)
        if picture.digest not in ours and root in source:
            digest = source[root]
            if root not in seen:
                seen[root] = alike.groups.seen_from(alike.number[digest])
            near.append(Leak(picture.place, ours[digest], how(seen[root][here])))
    return Leakage(
        exact=tuple(Leak(p.place, ours[p.digest], SAME_BYTES) for p in theirs if p.digest in ours),
        near=tuple(near),
    )


def how(link: Link) -> str:
    """The difference of two pictures in words."""
    words = [word for word in ("flipped", "cropped") if getattr(link, word)]
    return " and ".join(words) or "looks the same"


def _how_all(alike: Alike, group: Sequence[int]) -> tuple[str, ...]:
    seen = alike.groups.seen_from(group[0])
    return tuple(how(seen[index]) for index in group[1:])
