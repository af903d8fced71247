"""The map of embeddings, and images that are odd."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.decomposition import PCA
from torch.nn import functional

from attmask.data import quarantine
from attmask.data.sources import open_images
from attmask.html_report.embeddings import map_of, odd_of, unreadable_of
from attmask.html_report.gallery import Gallery, gallery_of
from attmask.html_report.pictures import Reading
from attmask.recipe import load_recipe
from tests.html_report.test_probes import numbers

TINY = load_recipe("tiny")


@pytest.fixture(scope="module")
def gallery(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    """Forty noisy pictures; 30 is nearly 3."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (40, 12, 12, 3))
    pictures[30] = np.clip(pictures[3] + 3, 0, 255)
    for number, pixels in enumerate(pictures):
        picture = Image.fromarray(pixels.astype(np.uint8)).resize((48, 48))
        picture.save(folder / f"{number:02d}.png")
    return gallery_of(open_images(folder), Reading.of(TINY, "cpu").newest(run, TINY))


def embeddings() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(40, 8, generator=generator) * 0.2
    vectors[:, 0] += 2
    vectors[30] = vectors[3] + 0.001
    vectors[17] = -vectors[17]
    return vectors


def test_the_map_is_the_pca_of_embeddings_of_unit_length(gallery: Gallery) -> None:
    made = map_of(embeddings(), gallery)
    unit = functional.normalize(embeddings().double(), dim=1).numpy()
    wanted = PCA(2).fit(unit)
    np.testing.assert_allclose(abs(numbers(made["points"])), abs(wanted.transform(unit)), atol=1e-5)
    np.testing.assert_allclose(made["explained"], wanted.explained_variance_ratio_, atol=1e-9)
    assert made["names"][:2] == ["00.png", "01.png"]
    assert made["labels"] is None


def test_an_image_far_from_all_is_odd_and_a_near_copy_is_found(gallery: Gallery, run: Path) -> None:
    odd = odd_of(embeddings(), gallery, run)
    assert odd["outliers"][0]["index"] == 17
    assert [(pair["first"], pair["second"]) for pair in odd["copies"]] == [(3, 30)]
    assert odd["unreadable"] == []


def test_unreadable_images_are_listed_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / quarantine.FILE).write_text("a/b.jpg\ttruncated\n")
    assert unreadable_of(tmp_path) == ["a/b.jpg: truncated"]


def test_a_single_image_is_neither_odd_nor_a_copy(run: Path, tmp_path: Path) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    alone = gallery_of(open_images(tmp_path), Reading.of(TINY, "cpu").newest(run, TINY))
    assert odd_of(torch.ones(1, 4), alone, run) == {"outliers": [], "copies": [], "unreadable": []}
    assert numbers(map_of(torch.ones(1, 4), alone)["points"]).shape == (1, 2)
