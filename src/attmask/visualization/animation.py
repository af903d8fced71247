"""The checkpoints of a run as one animated picture, without flicker."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from attmask import checkpoint
from attmask.errors import UserError
from attmask.evaluation.reporting.animation import write_animation
from attmask.visualization.attention import HEADS_TITLE
from attmask.visualization.cells import Pixels, colour_range, heads_cell, map_cell
from attmask.visualization.layout import picture
from attmask.visualization.pca import coloured, projection_of
from attmask.visualization.projection import aligned
from attmask.visualization.reading import Network
from attmask.visualization.sheet import Cell, Column, Row, Sheet

Moving = Literal["attention", "pca"]
_MILLISECONDS = 700  # a frame


def checkpoints_of(run: str | Path) -> list[str]:
    """The network before training and all checkpoints of a run, in the order of their steps."""
    folder = Path(run)
    found = [
        p for p in (folder / "checkpoints").glob("step-*") if re.fullmatch(r"step-\d+", p.name)
    ]
    if not found or not (folder / "config.yaml").is_file():
        raise UserError(
            f"{run} is not a run with checkpoints, which an animation needs; give a run"
        )
    return [f"{folder}@untrained", *map(str, sorted(found, key=checkpoint.step_of))]


def write_frames(networks: Sequence[Network], kind: Moving, file: Path) -> Path:
    """Write one frame for each network, in order."""
    frames = _attention_frames(networks) if kind == "attention" else _pca_frames(networks)
    return write_animation(map(picture, frames), file, milliseconds=_MILLISECONDS)


def _attention_frames(networks: Sequence[Network]) -> list[Sheet]:
    """Of each image, one range of colours holds for all frames."""
    images = range(len(networks[0].seen))
    maps = [[network.seen[i].attention for network in networks] for i in images]
    ranges = [[colour_range(one) for one in row] for row in maps]
    lows = [min(low for low, _ in row) for row in ranges]
    highs = [max(high for _, high in row) for row in ranges]

    def cells(network: Network, i: int) -> list[Pixels]:
        seen = network.seen[i]
        attention = map_cell(seen.photo, seen.on_grid(seen.attention), lows[i], highs[i])
        return [seen.photo, attention, heads_cell(seen.photo, seen.heads, seen.grid)]

    columns = ("image", "mean attention", HEADS_TITLE)
    return [_frame(network, columns, cells) for network in networks]


def _pca_frames(networks: Sequence[Network]) -> list[Sheet]:
    """The components of each frame are rotated towards those of the next; the last stay."""
    projections = [projection_of(networks[-1])]
    for network in reversed(networks[:-1]):
        projections.append(aligned(projection_of(network), projections[-1]))
    frames = []
    for network, projection in zip(networks, reversed(projections), strict=True):
        pictures = coloured(network, projection)

        def cells(network: Network, i: int, pictures: list[Pixels] = pictures) -> list[Pixels]:
            return [network.seen[i].photo, pictures[i]]

        frames.append(_frame(network, ("image", "components 1 to 3"), cells))
    return frames


def _frame(
    network: Network, columns: Sequence[str], cells: Callable[[Network, int], list[Pixels]]
) -> Sheet:
    rows = [Row([Cell(one) for one in cells(network, i)]) for i in range(len(network.seen))]
    return Sheet(_progress(network), [Column(title) for title in columns], rows)


def _progress(network: Network) -> str:
    origin = network.model.origin
    epoch = f"epoch {origin['epoch']:g}, " if "epoch" in origin else ""
    return f"{epoch}step {origin.get('step', 0):,}"
