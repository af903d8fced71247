"""Several networks on one sheet: rows of one image stand together, titles say what they share."""

from collections.abc import Callable, Sequence

from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, Row


def rows_by_image(
    networks: Sequence[Network], cells: Callable[[Network, Seen, int], Sequence[Cell | None]]
) -> list[list[Row]]:
    """For each image a group with one row for each network; `cells` gets the number of the image.

    Left of a row stands the name of the image, and of the network if there are several.
    """
    several = len(networks) > 1
    return [
        [
            Row(cells(network, seen, number), seen.name, network.name if several else "")
            for network, seen in zip(networks, together, strict=True)
        ]
        for number, together in enumerate(zip(*(n.seen for n in networks), strict=True))
    ]


def headed(title: str, networks: Sequence[Network]) -> str:
    """The title of a sheet, with the name of the network if there is only one."""
    return f"{title}: {networks[0].name}" if len(networks) == 1 else title


def blocks(numbers: Sequence[int]) -> str:
    """The blocks that are shown: "block 12", "blocks 2 and 12"."""
    distinct = [str(number) for number in sorted(set(numbers))]
    if len(distinct) == 1:
        return f"block {distinct[0]}"
    return f"blocks {', '.join(distinct[:-1])} and {distinct[-1]}"
