"""How similar all patches of an image are to one of them."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.visualization.cells import map_cell, marked
from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, ColourBar, Column, Row, Sheet, pages, titles


def similarity_sheets(
    networks: Sequence[Network], max_rows: int, *, patch: tuple[int, int] | None = None
) -> list[Sheet]:
    """One row for each image and network: the crop with the chosen patch, and the similarities."""
    chosen = {id(seen): chosen_patch(seen, patch) for n in networks for seen in n.seen}
    found = {id(seen): similarity(seen, chosen[id(seen)]) for n in networks for seen in n.seen}
    low = min(float(values.min()) for values in found.values())

    def row(network: Network, seen: Seen) -> Row:
        place, values = chosen[id(seen)], found[id(seen)]
        cells = [seen.photo, map_cell(seen.photo, seen.on_grid(values), low, 1.0)]
        caption = f"row {place[0]}, column {place[1]}"
        shown = [marked(cell, place, seen.grid) for cell in cells]
        return Row(
            [Cell(shown[0], caption), Cell(shown[1])],
            *titles(seen.name, network.name, len(networks)),
        )

    groups = [
        [row(network, seen) for network, seen in zip(networks, together, strict=True)]
        for together in zip(*(network.seen for network in networks), strict=True)
    ]
    title = "Similarity to one patch"
    if len(networks) == 1:
        title = f"{title}: {networks[0].name}"
    columns = [Column("image"), Column("similarity")]
    bar = ColourBar("cosine", f"{low:.2f}", "1.00")
    return pages(Sheet(title, columns, (), bar), groups, max_rows)


def chosen_patch(seen: Seen, patch: tuple[int, int] | None) -> tuple[int, int]:
    """The patch asked for, counted from 0, or the most attended one."""
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


def similarity(seen: Seen, patch: tuple[int, int]) -> Float[Tensor, " N"]:
    """The cosine of each patch with the chosen one."""
    unit = functional.normalize(seen.patches, dim=1)
    return unit @ unit[patch[0] * seen.grid[1] + patch[1]]
