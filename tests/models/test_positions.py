import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attmask.exporting.program import without_shape_checks
from attmask.mask import Grid
from attmask.models.positions import Resize, resize_positions

SIDE = st.integers(1, 9)
BOTH: list[Resize] = ["size", "reference"]
EVERY: list[Resize] = [*BOTH, "no-antialias"]


def table(grid: Grid, width: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, grid[0] * grid[1], width, generator=generator)


@pytest.mark.parametrize("how", BOTH)
def test_the_trained_grid_is_left_as_it_is(how: Resize) -> None:
    positions = table((4, 6))
    assert resize_positions(positions, (4, 6), (4, 6), how) is positions


@given(rows=SIDE, cols=SIDE, new_rows=SIDE, new_cols=SIDE, how=st.sampled_from(BOTH))
def test_every_grid_gets_one_embedding_a_patch(
    rows: int, cols: int, new_rows: int, new_cols: int, how: Resize
) -> None:
    resized = resize_positions(table((rows, cols)), (rows, cols), (new_rows, new_cols), how)
    assert resized.shape == (1, new_rows * new_cols, 4)


@given(new_rows=SIDE, new_cols=SIDE, how=st.sampled_from(BOTH))
def test_equal_embeddings_stay_equal(new_rows: int, new_cols: int, how: Resize) -> None:
    resized = resize_positions(torch.full((1, 20, 3), 0.7), (4, 5), (new_rows, new_cols), how)
    torch.testing.assert_close(resized, torch.full_like(resized, 0.7))


@pytest.mark.parametrize("how", BOTH)
def test_rows_stay_rows_and_columns_stay_columns(how: Resize) -> None:
    row, col = torch.meshgrid(torch.arange(4.0), torch.arange(6.0), indexing="ij")
    positions = torch.stack([row, col], dim=-1).reshape(1, 24, 2)
    rows, cols = resize_positions(positions, (4, 6), (7, 9), how).view(7, 9, 2).unbind(-1)
    assert (rows.diff(dim=0)[1:-1] > 0).all()
    assert (cols.diff(dim=1)[:, 1:-1] > 0).all()
    torch.testing.assert_close(rows, rows[:, :1].expand(7, 9), rtol=0, atol=1e-5)
    torch.testing.assert_close(cols, cols[:1].expand(7, 9), rtol=0, atol=1e-5)


def test_by_size_keeps_the_ends_alike_and_the_references_way_does_not() -> None:
    line = torch.tensor([0.0, 1.0, 2.0, 3.0]).repeat_interleave(4).view(1, 16, 1)
    by_size = resize_positions(line, (4, 4), (7, 7), "size").view(7, 7)[:, 0]
    torch.testing.assert_close(by_size, 3 - by_size.flip(0), rtol=0, atol=1e-5)
    shifted = resize_positions(line, (4, 4), (7, 7), "reference").view(7, 7)[:, 0]
    assert (shifted - (3 - shifted.flip(0))).abs().max() > 0.01


def test_the_references_way_scales_by_a_tenth_of_a_patch_more() -> None:
    positions = table((8, 6))
    image = positions.view(1, 8, 6, 4).permute(0, 3, 1, 2)
    scale = (5.1 / 8, 3.1 / 6)
    plain = F.interpolate(image, scale_factor=scale, mode="bicubic").permute(0, 2, 3, 1)
    ours = resize_positions(positions, (8, 6), (5, 3), "reference")
    torch.testing.assert_close(ours, plain.reshape(1, 15, 4))
    assert (ours - resize_positions(positions, (8, 6), (5, 3), "size")).abs().max() > 0.01


def test_by_size_hears_every_patch_when_it_shrinks() -> None:
    corner = torch.zeros(1, 64, 1)
    corner[0, 0] = 1
    assert resize_positions(corner, (8, 8), (1, 1), "size").abs().item() > 1e-4
    assert resize_positions(corner, (8, 8), (1, 1), "reference").item() == 0  # four by four alone


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_number_format_is_kept(dtype: torch.dtype) -> None:
    positions = table((4, 4))
    resized = resize_positions(positions.to(dtype), (4, 4), (6, 3), "size")
    assert resized.dtype == dtype
    exact = resize_positions(positions, (4, 4), (6, 3), "size")
    torch.testing.assert_close(resized.float(), exact, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("how", EVERY)
def test_a_grid_that_is_known_when_an_export_runs_is_resized_as_one_that_is_known_before(
    how: Resize,
) -> None:
    positions = table((5, 7))

    class Resized(torch.nn.Module):
        def forward(self, cells: Tensor) -> Tensor:
            return resize_positions(positions, (5, 7), (cells.shape[0], cells.shape[1]), how)

    sides = {0: torch.export.Dim("rows", min=1, max=99), 1: torch.export.Dim("columns", max=99)}
    with without_shape_checks():
        cells = torch.zeros(4, 6)
        program = torch.export.export(Resized(), (cells,), dynamic_shapes=(sides,)).module()
    for grid in ((5, 7), (7, 5), (1, 1), (2, 3), (5, 8), (14, 30)):
        wanted = resize_positions(positions, (5, 7), grid, how)
        torch.testing.assert_close(program(torch.zeros(grid)), wanted, atol=1e-5, rtol=0)
