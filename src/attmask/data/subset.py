"""Which images of many are taken: a part that is always the same and fair to all classes."""

from collections.abc import Sequence

import numpy as np

from attmask.errors import UserError


def spread_evenly(
    labels: Sequence[int] | np.ndarray | None, images: int, limit: int | None
) -> list[int]:
    """Indices of at most `limit` images, as equal in number per class and as evenly spaced in
    each class as can be; always the same ones, in ascending order."""
    if limit is None or limit >= images:
        return list(range(images))
    if limit < 1:
        raise UserError(f"a limit of {limit} images was given; use at least 1")
    members: dict[int, list[int]] = {}
    for index in range(images):
        members.setdefault(0 if labels is None else int(labels[index]), []).append(index)
    chosen: list[int] = []
    # The smallest classes first: what they cannot fill is shared by the larger ones.
    by_size = sorted(members.values(), key=len)
    for position, indices in enumerate(by_size):
        share = (limit - len(chosen)) // (len(by_size) - position)
        quota = min(len(indices), share)
        chosen += [indices[i * len(indices) // quota] for i in range(quota)]
    return sorted(chosen)
