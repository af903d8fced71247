from dataclasses import replace
from pathlib import Path

import pytest
import torch

from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.readout import CLS
from attmask.visualization.images import open_shown
from attmask.visualization.neighbours import class_of, neighbour_sheets, searched_images
from attmask.visualization.reading import Network, look
from tests.evaluation.models import extractor_in, tiny_model


def test_neighbours_are_the_nearest_by_cosine_with_their_classes(
    scenes: Path, tmp_path: Path
) -> None:
    source = open_shown(scenes, "val", DataConfig().channels)
    network = Network("tiny", tiny_model(), CenterCrop(32), extractor_in(tmp_path))
    look(network, source, [3, 11])
    (sheet,) = neighbour_sheets([network], 8, source=source, neighbours=4, max_images=100)

    features = network.extractor.features(network.model, source, network.crop, CLS)
    unit = torch.nn.functional.normalize(features.vectors.float(), dim=1)
    for row, query in zip(sheet.rows, (3, 11), strict=True):
        cosines = unit @ unit[query]
        cosines[query] = -2
        best = cosines.argsort(descending=True)[:4].tolist()
        captions = [cell.caption if cell else "" for cell in row.cells]
        assert captions[0] == class_of(source, query) != ""
        assert captions[1:] == [f"{class_of(source, n)}, {float(cosines[n]):.3f}" for n in best]

    unlabelled = replace(source, labels=None, classes=())
    (sheet,) = neighbour_sheets([network], 8, source=unlabelled, neighbours=1, max_images=100)
    assert all("," not in cell.caption for row in sheet.rows for cell in row.cells if cell)


def test_a_single_image_has_no_neighbours(scenes: Path, tmp_path: Path) -> None:
    source = open_shown(scenes, "val", 3).first(1)
    network = Network("tiny", tiny_model(), CenterCrop(32), extractor_in(tmp_path))
    look(network, source, [0])
    with pytest.raises(UserError, match="has no neighbours; give several"):
        neighbour_sheets([network], 8, source=source, neighbours=4, max_images=9)


def test_queries_are_searched_beside_evenly_spread_images(scenes: Path) -> None:
    source = open_shown(scenes, "val", 3)
    found = searched_images(source, [1, 7], 4)
    assert {1, 7} <= set(found)
    assert found == sorted(set(found))
    assert 4 <= len(found) <= 6
    assert searched_images(source, [1], 1000) == list(range(20))
