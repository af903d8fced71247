import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attmask.visualization.cells import (
    colour_cell,
    colour_range,
    heads_cell,
    map_cell,
    marked,
    masked_cell,
    photo,
    top_mass,
)
from attmask.visualization.colours import HIDDEN, head_colours


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


def test_the_top_mass_is_that_of_a_plain_loop() -> None:
    attention = torch.tensor([0.1, 0.4, 0.05, 0.3, 0.15])
    kept, held = set(), 0.0
    for index in sorted(range(5), key=lambda i: -float(attention[i])):
        if held < 0.6 * float(attention.sum()):
            kept.add(index)
            held += float(attention[index])
    assert set(top_mass(attention, 0.6).nonzero().flatten().tolist()) == kept == {1, 3}


def test_every_patch_of_the_heads_has_the_colour_of_one_head_and_no_other_is_coloured() -> None:
    draw = torch.Generator().manual_seed(0)
    heads = torch.rand(6, 12, generator=draw).pow(4)
    heads = heads / heads.sum(dim=1, keepdim=True)
    image = photo(torch.zeros(3, 24, 32, dtype=torch.uint8), (3, 4))  # black: colours are scaled
    cell = heads_cell(image, heads, (3, 4))
    side = cell.shape[0] // 3
    looks = top_mass(heads)
    for patch in range(12):
        row, col = divmod(patch, 4)
        shown = torch.tensor(cell[row * side + 1, col * side + 1].astype(float))
        if not looks[:, patch].any():
            assert (shown == 0).all()
            continue
        expected = int((heads * looks)[:, patch].argmax())
        palette = torch.tensor(head_colours(6), dtype=torch.float64)
        alike = torch.nn.functional.cosine_similarity(palette, shown[None], dim=1)
        assert int(alike.argmax()) == expected


def test_a_few_outliers_do_not_leave_the_other_patches_dark() -> None:
    values = torch.linspace(0, 1, 1000)
    values[3] = 1000.0
    low, high = colour_range(values)
    assert low == 0
    assert high == pytest.approx(0.99, abs=0.01)
    flat = map_cell(photo(torch.zeros(3, 8, 8, dtype=torch.uint8), (2, 2)), torch.ones(2, 2))
    assert len(np.unique(flat.reshape(-1, 3), axis=0)) == 1


def test_a_mark_leaves_the_patch_and_all_that_is_far_from_it() -> None:
    image = photo(torch.full((3, 32, 32), 90, dtype=torch.uint8), (4, 4))
    for patch in ((0, 0), (1, 2), (3, 3)):
        cell = marked(image, patch, (4, 4))
        side = cell.shape[0] // 4
        top, left = patch[0] * side, patch[1] * side
        assert (cell[top : top + side, left : left + side] == 90).all()
        changed = np.argwhere((cell != image).any(axis=2))
        assert changed[:, 0].min() >= top - 4
        assert changed[:, 0].max() < top + side + 4
        assert (cell[changed[:, 0], changed[:, 1]].max(axis=1) == 255).any()


def test_patches_that_are_not_shown_are_faded_to_grey() -> None:
    image = photo(torch.full((3, 16, 16), 90, dtype=torch.uint8), (2, 2))
    patches = torch.tensor([200, 10, 30], dtype=torch.uint8).expand(2, 2, 3)
    shown = torch.tensor([[True, False], [False, False]])
    cell = colour_cell(image, patches, shown)
    side = cell.shape[0] // 2
    assert (cell[:side, :side] == (200, 10, 30)).all()
    faded = cell[side:].astype(int)
    assert np.ptp(faded, axis=2).max() <= 4
    assert faded.min() > 90


@given(rows=st.integers(1, 60), cols=st.integers(1, 60))
def test_a_cell_of_any_grid_has_whole_patches_and_a_readable_size(rows: int, cols: int) -> None:
    image = photo(torch.zeros(3, rows, cols, dtype=torch.uint8), (rows, cols))
    assert image.shape[0] % rows == image.shape[1] % cols == 0
    assert image.shape[0] // rows == image.shape[1] // cols
    assert abs(max(image.shape) - 224) <= max(rows, cols) / 2
