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
from attmask.visualization.reading import Network, Seen
from attmask.visualization.sheet import Cell, Column, Sheet, pages
from attmask.visualization.side_by_side import headed, rows_by_image


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
    found = {id(network): _nearest(network, source, searched, count) for network in networks}

    def cells(network: Network, seen: Seen, number: int) -> list[Cell | None]:
        near = [_cell(network, source, *one) for one in found[id(network)][number]]
        return [
            Cell(seen.photo, class_of(source, seen.index)),
            *near,
            *[None] * (count - len(near)),
        ]

    columns = [Column("image"), *(Column(f"neighbour {n + 1}") for n in range(count))]
    title = headed(f"Nearest of {len(searched):,} images by the cosine of [CLS]", networks)
    return pages(Sheet(title, columns, ()), rows_by_image(networks, cells), max_rows)


def searched_images(source: Source, queries: Sequence[int], max_images: int) -> list[int]:
    """The queries and evenly spread images, in order, `max_images` at most beside the queries."""
    spread = evenly_spaced(len(source), min(max_images, len(source)))
    return sorted({*queries, *map(int, spread)})


def class_of(source: Source, index: int) -> str:
    """The class of an image; nothing where it is not known."""
    if source.labels is None or not 0 <= (label := int(source.labels[index])) < len(source.classes):
        return ""
    return str(source.classes[label])


def _nearest(
    network: Network, source: Source, searched: Sequence[int], count: int
) -> list[list[tuple[int, float]]]:
    """For each image shown, the indices of its neighbours in the source, with their cosines."""
    some = source.subset(searched)
    features = network.extractor.features(network.model, some, network.crop, CLS)
    read = list(searched)
    if features.rows is not None:
        read = [searched[int(row)] for row in features.rows]
    queries = torch.tensor([read.index(seen.index) for seen in network.seen])
    vectors = features.vectors.float()
    chunks = list(nearest(vectors, vectors[queries], min(count + 1, len(read))))
    cosines = torch.cat([cosine for cosine, _ in chunks]).tolist()
    indices = torch.cat([index for _, index in chunks]).tolist()
    return [
        [(read[n], c) for n, c in zip(near, cosine, strict=True) if n != own][:count]
        for own, near, cosine in zip(queries.tolist(), indices, cosines, strict=True)
    ]


def _cell(network: Network, source: Source, index: int, cosine: float) -> Cell:
    crop = network.crop(decode(source, index, network.model.data), index)
    grid = network.model.backbone.grid(*crop.shape[1:])
    pixels: Pixels = photo(crop, grid)
    return Cell(pixels, ", ".join(filter(None, (class_of(source, index), f"{cosine:.3f}"))))
