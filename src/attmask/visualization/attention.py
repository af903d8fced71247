"""Attention of [CLS]: the mean, each head, and all heads in their colours."""

from collections.abc import Sequence

from attmask.visualization.cells import heads_cell, map_cell
from attmask.visualization.colours import head_colours
from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, Column, Sheet, pages
from attmask.visualization.side_by_side import blocks, headed, rows_by_image

HEADS_TITLE = "heads, top 60 %"


def attention_sheets(networks: Sequence[Network], max_rows: int) -> list[Sheet]:
    """One row for each image and network: the crop, its map, all heads, and one map a head."""
    most = max(len(seen.heads) for network in networks for seen in network.seen)
    columns = [
        *map(Column, ("image", "mean attention", HEADS_TITLE)),
        *(Column(f"head {n + 1}", colour) for n, colour in enumerate(head_colours(most))),
    ]
    shown = blocks([network.attention_block for network in networks])
    title = headed(f"[CLS] attention, {shown}", networks)
    groups = rows_by_image(networks, lambda _, seen, __: _cells(seen, most))
    return pages(Sheet(title, columns, ()), groups, max_rows)


def _cells(seen: Seen, most: int) -> list[Cell | None]:
    photo = seen.photo
    maps = [map_cell(photo, seen.on_grid(one)) for one in (seen.attention, *seen.heads)]
    absent = [None] * (most - len(seen.heads))
    figure = heads_cell(photo, seen.heads, seen.grid)
    return [Cell(photo), Cell(maps[0]), Cell(figure), *map(Cell, maps[1:]), *absent]
