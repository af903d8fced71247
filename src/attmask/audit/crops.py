"""Which pictures are cut out of which others: a quick search, then a close comparison."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from attmask.audit.align import is_part
from attmask.audit.duplicates import Groups, Link
from attmask.audit.fingerprint import SIDE
from attmask.audit.windows import WINDOWS, candidates

_BLOCK = 1024  # pairs that are held as floats at once


def crop_links(thumbnails: Sequence[bytes | None], groups: Groups) -> Iterator[Link]:
    """Links from pictures to those that they are cut out of, where no group has both yet."""
    known = np.array([i for i, small in enumerate(thumbnails) if small is not None], dtype=np.int64)
    joined = bytearray().join(small for small in thumbnails if small is not None)
    pictures = np.frombuffer(joined, dtype=np.uint8).reshape(-1, SIDE, SIDE)
    found = candidates(pictures, np.array([groups.root(i) for i in known.tolist()], dtype=np.int64))
    for begin in range(0, len(found.part), _BLOCK):
        here = slice(begin, begin + _BLOCK)
        parts, wholes = pictures[found.part[here]], pictures[found.whole[here]]
        mirrored = found.mirrored[here]
        parts = np.where(mirrored[:, None, None], parts[:, :, ::-1], parts)
        edges = torch.tensor([WINDOWS[number] for number in found.window[here].tolist()])
        same = is_part(torch.from_numpy(parts).float(), torch.from_numpy(wholes).float(), edges)
        pairs = np.stack([known[found.part[here]], known[found.whole[here]], mirrored], axis=1)
        for one, other, mirror in pairs[same.numpy()].tolist():
            yield Link(one, other, mirrored=bool(mirror), cropped=True)
