"""Patches as colours: their three principal components over all images shown."""

from collections.abc import Sequence

import torch

from attmask.visualization.cells import Pixels, colour_cell
from attmask.visualization.colours import score_colours
from attmask.visualization.projection import Projection, foreground, project
from attmask.visualization.reading import Network
from attmask.visualization.sheet import Cell, Column, Row, Sheet, pages, titles


def pca_sheets(
    networks: Sequence[Network], max_rows: int, *, only_foreground: bool = False
) -> list[Sheet]:
    """One row for each image and network: the crop, and its patches in colours."""
    drawn = [_pictures(network, only_foreground) for network in networks]
    groups = [
        [
            Row(
                [Cell(seen.photo), Cell(pictures[number])],
                *titles(seen.name, network.name, len(networks)),
            )
            for network, pictures in zip(networks, drawn, strict=True)
            for seen in [network.seen[number]]
        ]
        for number in range(len(networks[0].seen))
    ]
    blocks = " and ".join(sorted({f"block {network.patch_block}" for network in networks}))
    what = "foreground patches" if only_foreground else "patches"
    title = f"Principal components of {what}, {blocks}"
    if len(networks) == 1:
        title = f"{title}: {networks[0].name}"
    columns = [Column("image"), Column("components 1 to 3")]
    return pages(Sheet(title, columns, ()), groups, max_rows)


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
