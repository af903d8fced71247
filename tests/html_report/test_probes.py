"""What a network makes of the probe images, as the page stores it."""

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from attmask.data.sources import open_images
from attmask.evaluation.features.readout import AttentionMaps
from attmask.html_report.gallery import Gallery, gallery_of
from attmask.html_report.pictures import Reading
from attmask.html_report.probes import RATIOS, patches_of, probe_of, read, similarity_of, studio_of
from attmask.kinds import read_config
from attmask.recipe import load_recipe

TINY = load_recipe("tiny")
READING = Reading.of(TINY, "cpu")
KINDS = {"f4": "<f4", "i1": "i1", "u1": "u1"}


def numbers(array: dict[str, Any]) -> np.ndarray:
    raw = base64.b64decode(array["data"])
    *outer, inner = array["shape"]
    if array["dtype"] == "bits":
        packed = np.frombuffer(raw, np.uint8).reshape(*outer, -1)
        return np.unpackbits(packed, axis=-1)[..., :inner]
    return np.frombuffer(raw, KINDS[array["dtype"]]).reshape(array["shape"])


@pytest.fixture(scope="module")
def gallery(run: Path, scenes: Path) -> Gallery:
    return gallery_of(open_images(scenes), READING.newest(run, TINY))


def test_the_studio_has_every_head_and_every_block(run: Path, gallery: Gallery) -> None:
    model = READING.newest(run, TINY)
    studio = studio_of(model, gallery, read_config(run / "config.yaml"), READING.autocast)
    assert [row["title"] for row in studio["rows"]] == [
        "block 2, all heads",
        *(f"block 2, head {number}" for number in (1, 2, 3)),
        "block 1, all heads",
    ]
    attention = numbers(studio["attention"])
    wanted = read(model, gallery, AttentionMaps(), READING.autocast).flatten(1).numpy()
    assert np.array_equal(attention[:, 0], wanted), "the mean that masking uses, to the bit"
    np.testing.assert_allclose(attention[:, 1:4].mean(axis=1), wanted, rtol=1e-6)
    assert (studio["strategy"], studio["ratio"]) == ("high", 0.3)


def test_random_masks_hide_the_exact_number_at_every_ratio_of_the_slider(
    run: Path, gallery: Gallery
) -> None:
    config = read_config(run / "config.yaml")
    studio = studio_of(READING.newest(run, TINY), gallery, config, READING.autocast)
    random, block = numbers(studio["random"]), numbers(studio["block"])
    assert random.shape == block.shape == (len(gallery.probes), len(RATIOS), 16)
    wanted = [int(16 * ratio) for ratio in studio["ratios"]]
    assert (random.sum(axis=2) == wanted).all()
    assert (block.sum(axis=2) <= wanted).all()


def test_cosines_of_the_stored_features_are_those_of_the_patches() -> None:
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(5, 96, generator=generator)
    patches = torch.randn(2, 30, 5, generator=generator) @ base
    patches += 0.02 * torch.randn(2, 30, 96, generator=generator)
    stored = similarity_of(patches)
    assert 0.99 < stored["kept"] <= 1
    few = torch.from_numpy(numbers(stored["features"]).astype(np.float32)).flatten(0, 1)
    ours = functional.normalize(few, dim=1)
    theirs = functional.normalize(patches.flatten(0, 1), dim=1)
    torch.testing.assert_close(ours @ ours.T, theirs @ theirs.T, atol=0.02, rtol=0)


def test_probes_are_pictures_of_whole_patches_with_the_share_of_the_object(
    gallery: Gallery,
) -> None:
    probe = probe_of(gallery)
    assert probe["size"][0] % probe["grid"][0] == 0
    objects = gallery.objects()
    assert objects is not None
    for image, share in zip(probe["images"], objects, strict=True):
        assert image["src"].startswith("data:image/webp;base64,")
        np.testing.assert_allclose(numbers(image["object"]) / 255, share, atol=0.002)


def test_patches_are_tokens_by_row_and_column(run: Path, gallery: Gallery) -> None:
    patches = patches_of(READING.newest(run, TINY), gallery, READING.autocast)
    assert patches.shape == (len(gallery.probes), 16, 48)
