"""A part is found in its whole to a hundredth of its side, and nothing in another picture."""

import cv2
import numpy as np
import torch

from attmask.audit.align import fit, has_corners
from attmask.audit.fingerprint import thumbnail
from tests.audit.pictures import natural


def grey(seed: int) -> np.ndarray:
    return np.asarray(cv2.cvtColor(natural(seed, 400, 400), cv2.COLOR_RGB2GRAY))


def floats(*pictures: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack([thumbnail(picture) for picture in pictures])).float()


def test_the_edges_of_a_cut_are_found_from_a_start_nearby_whatever_the_light() -> None:
    whole = grey(0)
    part = (whole[20:380, 40:400] * 0.8 + 30).astype(np.uint8)
    found = fit(floats(part), floats(whole), torch.tensor([[0.12, 0.97, 0.02, 0.98]]))
    assert found.same.tolist() == [True]
    assert torch.allclose(found.edges, torch.tensor([[0.1, 1.0, 0.05, 0.95]]), atol=0.01)


def test_other_pictures_and_flipped_ones_do_not_fit() -> None:
    whole = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    others = [grey(1), grey(0)[:, ::-1].copy(), grey(0)[::-1].copy()]
    found = fit(floats(*others), floats(*[grey(0)] * 3), whole.repeat(3, 1))
    assert found.same.tolist() == [False] * 3


def test_pictures_without_details_fit_nothing() -> None:
    ramp = np.broadcast_to(np.linspace(0, 255, 64), (64, 64)).astype(np.uint8)
    whole = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    assert fit(floats(ramp), floats(ramp), whole).same.tolist() == [False]
    assert has_corners(floats(ramp, grey(0))).tolist() == [False, True]


def test_no_pairs_are_no_fits() -> None:
    nothing = torch.empty(0, 32, 32)
    assert fit(nothing, nothing, torch.empty(0, 4)).same.tolist() == []
