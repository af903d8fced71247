"""Confirm links by thumbnails, and find cropped copies."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float32, Int64, UInt8

from attmask.audit.align import fit, has_corners
from attmask.audit.fingerprint import SIDE
from attmask.audit.links import Groups, Link
from attmask.audit.windows import WHOLE, WINDOWS, candidates

_BLOCK = 1024  # pairs that are held as floats at once
_UNCUT = 0.015  # share of a side; a smaller cut is but how the copy was scaled


class Thumbnails:
    """The thumbnails of pictures, of which some have none."""

    def __init__(self, thumbnails: Sequence[bytes | None]) -> None:
        known = [index for index, small in enumerate(thumbnails) if small is not None]
        joined = bytearray().join(small for small in thumbnails if small is not None)
        self.pixels = np.frombuffer(joined, dtype=np.uint8).reshape(-1, SIDE, SIDE)
        self.pictures = known
        self.row = {picture: row for row, picture in enumerate(known)}


def confirmed(links: Iterable[Link], thumbnails: Thumbnails) -> Iterator[Link]:
    """The links whose thumbnails match; links without thumbnails are kept."""
    row = thumbnails.row
    asked: list[Link] = []
    for link in links:
        if link.one in row and link.other in row:
            asked.append(link)
        else:
            yield link
    same, _ = _fit_pairs(
        thumbnails.pixels,
        np.array([row[link.one] for link in asked], dtype=np.int64),
        np.array([row[link.other] for link in asked], dtype=np.int64),
        np.array([link.flipped for link in asked], dtype=np.bool_),
        np.tile(np.array(WHOLE, dtype=np.float32), (len(asked), 1)),
    )
    yield from (link for link, good in zip(asked, same.tolist(), strict=True) if good)


def crop_links(thumbnails: Thumbnails, groups: Groups) -> Iterator[Link]:
    """Links from pictures to those that they are cut out of, where no group has both yet."""
    blocks = torch.from_numpy(thumbnails.pixels).split(_BLOCK)
    corners = np.concatenate([has_corners(block.float()).numpy() for block in blocks])
    pictures = [p for p, good in zip(thumbnails.pictures, corners, strict=True) if good]
    pixels = thumbnails.pixels[corners]
    group = groups.labels()[np.array(pictures, dtype=np.int64)]
    found = candidates(pixels, group)
    edges = np.array(WINDOWS, dtype=np.float32)[found.window]
    same, edges = _fit_pairs(pixels, found.part, found.whole, found.flipped, edges)
    cropped = abs(edges - np.array(WHOLE, dtype=np.float32)).max(axis=1) > _UNCUT
    for pair in np.flatnonzero(same).tolist():
        part, whole = pictures[found.part[pair]], pictures[found.whole[pair]]
        yield Link(part, whole, bool(found.flipped[pair]), bool(cropped[pair]))


def _fit_pairs(
    pixels: UInt8[np.ndarray, "n S S"],
    parts: Int64[np.ndarray, " p"],
    wholes: Int64[np.ndarray, " p"],
    flipped: Bool[np.ndarray, " p"],
    edges: Float32[np.ndarray, "p 4"],
) -> tuple[Bool[np.ndarray, " p"], Float32[np.ndarray, "p 4"]]:
    """Whether each part, flipped if `flipped` is set, is a crop of its original, and the edges."""
    same, refined = np.zeros(len(parts), dtype=np.bool_), edges.copy()
    for begin in range(0, len(parts), _BLOCK):
        here = slice(begin, begin + _BLOCK)
        part, whole = pixels[parts[here]], pixels[wholes[here]]
        part = np.where(flipped[here, None, None], part[:, :, ::-1], part)
        one, other = (torch.from_numpy(values).float() for values in (part, whole))
        found = fit(one, other, torch.from_numpy(edges[here]))
        same[here], refined[here] = found.same.numpy(), found.edges.numpy()
    return same, refined
