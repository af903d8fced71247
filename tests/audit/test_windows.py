"""The quick search: it names the wholes of parts, and little else, however many are alike."""

import cv2
import numpy as np
import pytest

from attmask.audit.fingerprint import thumbnail
from attmask.audit.windows import candidates
from tests.audit.pictures import natural


def small(pixels: np.ndarray) -> np.ndarray:
    return thumbnail(np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)))


def test_the_whole_of_each_part_is_among_the_candidates() -> None:
    wholes = [natural(seed) for seed in range(100)]
    parts = [whole[8:142, 20:] for whole in wholes[:20]]
    turned = [whole[:130, :180][:, ::-1].copy() for whole in wholes[20:40]]
    thumbnails = np.stack([small(pixels) for pixels in (*wholes, *parts, *turned)])
    found = candidates(thumbnails, np.arange(len(thumbnails)))
    named = set(zip(found.part.tolist(), found.whole.tolist(), found.flipped.tolist(), strict=True))
    assert sum((100 + seed, seed, seed >= 20) in named for seed in range(40)) == 40
    assert len(found.part) < 3 * len(thumbnails)


def test_pictures_of_one_group_are_no_candidates_of_one_another() -> None:
    thumbnails = np.stack([small(natural(0)[: 150 - cut]) for cut in range(10)])
    assert len(candidates(thumbnails, np.arange(10)).part) > 10
    assert len(candidates(thumbnails, np.zeros(10, dtype=np.int64)).part) == 0


def test_a_thousand_pictures_that_are_all_alike_have_few_candidates_each() -> None:
    noise = np.random.default_rng(0).integers(0, 9, (1000, 32, 32))
    thumbnails = (small(natural(0)) // 2 + noise).astype(np.uint8)
    found = candidates(thumbnails, np.arange(1000))
    assert 1000 < len(found.part) <= 6 * 1000


@pytest.mark.parametrize("count", [0, 1])
def test_few_pictures_have_no_candidates(count: int) -> None:
    assert len(candidates(np.zeros((count, 32, 32), dtype=np.uint8), np.arange(count)).part) == 0
