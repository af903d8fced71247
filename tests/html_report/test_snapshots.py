"""What is kept of each epoch."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from attmask.data.sources import open_images
from attmask.html_report.gallery import Gallery, gallery_of
from attmask.html_report.pictures import Reading
from attmask.html_report.snapshots import (
    FOLDER,
    MOST_EPOCHS,
    Snapshot,
    keep,
    kept,
    neighbours_of,
    pca_of,
    snapshot,
)
from attmask.recipe import load_recipe
from tests.html_report.test_probes import numbers

TINY = load_recipe("tiny")


@pytest.fixture(scope="module")
def gallery(run: Path, scenes: Path) -> Gallery:
    return gallery_of(open_images(scenes), Reading.of(TINY, "cpu").newest(run, TINY))


@pytest.fixture(scope="module")
def taken(gallery: Gallery) -> Snapshot:
    generator = torch.Generator().manual_seed(0)
    patches = torch.randn(len(gallery.probes), 16, 6, generator=generator)
    embeddings = torch.randn(len(gallery.crops), 6, generator=generator)
    return snapshot(4.0, patches, embeddings, gallery)


def test_neighbours_are_the_nearest_by_cosine_and_never_the_image_itself(
    gallery: Gallery, taken: Snapshot
) -> None:
    generator = torch.Generator().manual_seed(0)
    torch.randn(len(gallery.probes), 16, 6, generator=generator)
    embeddings = torch.randn(len(gallery.crops), 6, generator=generator)
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    cosines = (unit @ unit.T).fill_diagonal_(-2)
    values, indices = cosines[gallery.probes].topk(5)
    assert taken.neighbours.tolist() == indices.tolist()
    np.testing.assert_allclose(taken.cosines, values, atol=1e-6)


@pytest.mark.parametrize("content", [b"half a file", b"", b"PK\x03\x04 cut"])
def test_a_snapshot_is_read_back_and_a_broken_one_is_passed_over(
    content: bytes, gallery: Gallery, taken: Snapshot, tmp_path: Path
) -> None:
    for epoch in (0.0, 4.0, 12.5):
        keep(tmp_path, replace(taken, epoch=epoch), gallery)
    (broken, *_) = sorted((tmp_path / FOLDER).iterdir())
    broken.write_bytes(content)
    found = kept(tmp_path, gallery)
    assert sorted(found) == [4.0, 12.5]
    assert np.array_equal(found[4.0].scores, taken.scores)
    assert np.array_equal(found[4.0].neighbours, taken.neighbours)
    other = replace(gallery, probes=gallery.probes[:1])
    assert kept(tmp_path, other) == {}, "of other images"


def test_a_folder_that_cannot_be_written_is_a_warning(
    gallery: Gallery, taken: Snapshot, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FOLDER).write_text("a file in the way")
    keep(tmp_path, taken, gallery)
    assert "cannot write" in caplog.text


def test_components_that_only_turn_keep_their_colours(gallery: Gallery, taken: Snapshot) -> None:
    signs = np.array([1, -1, -1], np.float32)
    turned = replace(taken, epoch=0.0, scores=taken.scores[:, [1, 0, 2]] * signs)
    made = pca_of([taken, turned], gallery, 3)
    assert made["epochs"] == [0.0, 4.0]
    before, after = numbers(made["colours"]).astype(int)
    assert before.shape == (3, 16, 3)
    assert abs(before - after).max() <= 1


def test_of_many_epochs_the_first_ones_are_spread_and_the_last_is_shown(
    gallery: Gallery, taken: Snapshot
) -> None:
    many = [replace(taken, epoch=float(epoch)) for epoch in range(100)]
    epochs = pca_of(many, gallery, 1)["epochs"]
    assert len(epochs) == MOST_EPOCHS
    assert epochs == sorted(epochs)
    assert epochs[-1] == 99


def test_neighbours_before_training_are_shown_only_if_they_were_taken(
    gallery: Gallery, taken: Snapshot
) -> None:
    before = replace(taken, epoch=0.0)
    titles = [each["title"] for each in neighbours_of([taken, before], gallery)["columns"]]
    assert titles == ["untrained", "now"]
    assert [each["title"] for each in neighbours_of([taken], gallery)["columns"]] == ["now"]
