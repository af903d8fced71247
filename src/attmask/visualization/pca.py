"""Patches as colours: their three principal components over all images shown."""

from collections.abc import Sequence

import torch

from attmask.visualization.cells import Pixels, colour_cell
from attmask.visualization.colours import score_colours
from attmask.visualization.projection import Projection, foreground, project
from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, Column, Sheet, pages
from attmask.visualization.side_by_side import blocks, headed, rows_by_image


def pca_sheets(
    networks: Sequence[Network], max_rows: int, *, only_foreground: bool = False
) -> list[Sheet]:
    """One row for each image and network: the crop, and its patches in colours."""
    drawn = {id(network): _pictures(network, only_foreground) for network in networks}

    def cells(network: Network, seen: Seen, number: int) -> list[Cell]:
        return [Cell(seen.photo), Cell(drawn[id(network)][number])]

    what = "foreground patches" if only_foreground else "patches"
    shown = blocks([network.patch_block for network in networks])
    title = headed(f"Principal components of {what}, {shown}", networks)
    columns = [Column("image"), Column("components 1 to 3")]
    return pages(Sheet(title, columns, ()), rows_by_image(networks, cells), max_rows)


def projection_of(network: Network) -> Projection:
    """The projection of all patches of all images shown."""
    return project(torch.cat([seen.patches for seen in network.seen]))


def coloured(network: Network, projection: Projection) -> list[Pixels]:
    """The patches of each image in the colours of their scores."""
    parts = score_colours(projection.range).split([len(seen.patches) for seen in network.seen])
    return [
        colour_cell(seen.photo, seen.on_grid(part))
        for seen, part in zip(network.seen, parts, strict=True)
    ]


def _pictures(network: Network, only_foreground: bool) -> list[Pixels]:
    if not only_foreground:
        return coloured(network, projection_of(network))
    patches = torch.cat([seen.patches for seen in network.seen])
    kept = foreground(patches, torch.cat([seen.attention for seen in network.seen]))
    colours = torch.zeros(len(patches), 3, dtype=torch.uint8)
    colours[kept] = score_colours(project(patches[kept]).range)
    sizes = [len(seen.patches) for seen in network.seen]
    return [
        colour_cell(seen.photo, seen.on_grid(part), seen.on_grid(shown))
        for seen, part, shown in zip(
            network.seen, colours.split(sizes), kept.split(sizes), strict=True
        )
    ]
