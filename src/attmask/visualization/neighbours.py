"""The nearest images of a set, by the cosine of [CLS]."""

from collections.abc import Sequence

import torch

from attmask.data.decode import decode
from attmask.data.source import Source
from attmask.data.subset import evenly_spaced
from attmask.errors import UserError
from attmask.evaluation.features.readout import CLS
from attmask.evaluation.metrics.neighbours import nearest
from attmask.visualization.cells import Pixels, photo
from attmask.visualization.reading import Network
from attmask.visualization.sheet import Cell, Column, Row, Sheet, pages, titles


def neighbour_sheets(
    networks: Sequence[Network],
    max_rows: int,
    *,
    source: Source,
    neighbours: int,
    max_images: int,
) -> list[Sheet]:
    """One row for each image and network: the image and its nearest neighbours."""
    searched = searched_images(source, [seen.index for seen in networks[0].seen], max_images)
    if len(searched) < 2:
        raise UserError(
            f"{source.root} has {len(searched)} image, which has no neighbours; give several"
        )
    count = min(neighbours, len(searched) - 1)
    rows = [_rows(network, source, searched, count, len(networks)) for network in networks]
    columns = [Column("image"), *(Column(f"neighbour {n + 1}") for n in range(count))]
    title = f"Nearest of {len(searched):,} images by the cosine of [CLS]"
    if len(networks) == 1:
        title = f"{title}: {networks[0].name}"
    return pages(Sheet(title, columns, ()), list(zip(*rows, strict=True)), max_rows)


def searched_images(source: Source, queries: Sequence[int], max_images: int) -> list[int]:
    """The queries and evenly spread images, in order, `max_images` at most beside the queries."""
    spread = evenly_spaced(len(source), min(max_images, len(source)))
    return sorted({*queries, *map(int, spread)})


def _rows(
    network: Network, source: Source, searched: Sequence[int], count: int, networks: int
) -> list[Row]:
    some = source.subset(searched)
    features = network.extractor.features(network.model, some, network.crop, CLS)
    read = list(searched)
    if features.rows is not None:
        read = [searched[int(row)] for row in features.rows]
    queries = torch.tensor([read.index(seen.index) for seen in network.seen])
    vectors = features.vectors.float()
    most = min(count + 1, len(read))
    chunks = list(nearest(vectors, vectors[queries], most))
    cosines = torch.cat([cosine for cosine, _ in chunks]).tolist()
    indices = torch.cat([index for _, index in chunks]).tolist()
    rows = []
    for place, seen in enumerate(network.seen):
        own = int(queries[place])
        found = [(n, c) for n, c in zip(indices[place], cosines[place], strict=True) if n != own]
        cells = [_cell(network, source, read[n], c) for n, c in found[:count]]
        absent = [None] * (count - len(cells))
        rows.append(
            Row([Cell(seen.photo), *cells, *absent], *titles(seen.name, network.name, networks))
        )
    return rows


def _cell(network: Network, source: Source, index: int, cosine: float) -> Cell:
    crop = network.crop(decode(source, index, network.model.data), index)
    grid = network.model.backbone.grid(*crop.shape[1:])
    pixels: Pixels = photo(crop, grid)
    return Cell(pixels, f"{cosine:.3f}")
