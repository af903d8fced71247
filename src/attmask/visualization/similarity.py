"""How similar all patches of an image are to one of them."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.mask import Grid
from attmask.visualization.cells import map_cell, marked
from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, ColourBar, Column, Sheet, pages
from attmask.visualization.side_by_side import headed, rows_by_image

Patch = tuple[int, int]
"""Row and column, counted from 0."""


def similarity_sheets(
    networks: Sequence[Network], max_rows: int, *, patch: Patch | None = None
) -> list[Sheet]:
    """One row for each image and network: the crop with the chosen patch, and the similarities.

    The patch is chosen in the grid of the last network; the others show the one at its place.
    """
    chosen = [chosen_patch(seen, patch) for seen in networks[-1].seen]
    grids = [seen.grid for seen in networks[-1].seen]
    found = {
        id(seen): similarity(seen, at_same_place(chosen[number], grids[number], seen.grid))
        for network in networks
        for number, seen in enumerate(network.seen)
    }
    least = min(float(values.min()) for values in found.values())
    low = max(0.0, least)

    def cells(network: Network, seen: Seen, number: int) -> list[Cell]:
        place = at_same_place(chosen[number], grids[number], seen.grid)
        similar = map_cell(seen.photo, seen.on_grid(found[id(seen)]), low, 1.0)
        shown = [marked(cell, place, seen.grid) for cell in (seen.photo, similar)]
        return [Cell(shown[0], f"row {place[0]}, column {place[1]}"), Cell(shown[1])]

    columns = [Column("image"), Column("similarity")]
    bar = ColourBar("cosine", f"{low:.2f}" if least >= 0 else "≤ 0.00", "1.00")
    title = headed("Similarity to one patch", networks)
    return pages(Sheet(title, columns, (), bar), rows_by_image(networks, cells), max_rows)


def chosen_patch(seen: Seen, patch: Patch | None) -> Patch:
    """The patch asked for, or the most attended one."""
    rows, cols = seen.grid
    if patch is None:
        row, col = divmod(int(seen.attention.argmax()), cols)
        return row, col
    if not (0 <= patch[0] < rows and 0 <= patch[1] < cols):
        raise UserError(
            f"patch {patch[0]},{patch[1]} is outside of {seen.name}, which has {rows} x {cols} "
            f"patches; use 0,0 to {rows - 1},{cols - 1}"
        )
    return patch


def at_same_place(patch: Patch, grid: Grid, other: Grid) -> Patch:
    """The patch of another grid over the same image that holds the centre of a patch."""
    row, col = (
        (2 * at + 1) * to // (2 * of) for at, of, to in zip(patch, grid, other, strict=True)
    )
    return row, col


def similarity(seen: Seen, patch: Patch) -> Float[Tensor, " N"]:
    """The cosine of each patch with the chosen one."""
    unit = functional.normalize(seen.patches, dim=1)
    return unit @ unit[patch[0] * seen.grid[1] + patch[1]]
