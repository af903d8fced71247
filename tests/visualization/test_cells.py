import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from attmask.visualization.cells import masked_cell, photo, top_mass
from attmask.visualization.colours import HIDDEN


@given(seed=st.integers(0, 1000), mass=st.sampled_from([0.1, 0.6, 0.95]))
def test_the_top_mass_is_the_fewest_patches_that_hold_it(seed: int, mass: float) -> None:
    attention = torch.rand(2, 20, generator=torch.Generator().manual_seed(seed))
    kept = top_mass(attention, mass)
    for row, chosen in zip(attention, kept, strict=True):
        held, total = row[chosen].sum(), row.sum()
        assert held >= mass * total - 1e-5
        assert held - row[chosen].min() < mass * total + 1e-5
        assert row[chosen].min() >= row[~chosen].max()


def test_hidden_patches_are_grey_and_the_others_are_the_image() -> None:
    image = photo(torch.full((5, 32, 48), 200, dtype=torch.uint8), (4, 6))
    hidden = torch.rand(4, 6, generator=torch.Generator().manual_seed(0)) < 0.4
    cell = masked_cell(image, hidden)
    side = cell.shape[0] // 4
    centres = cell[side // 2 :: side, side // 2 :: side]
    assert np.array_equal((centres == HIDDEN).all(axis=2), hidden.numpy())
    assert (centres[~hidden.numpy()] == 200).all()
