from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from attmask.data.config import DataConfig
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.data.synthetic import write_folder
from attmask.errors import UserError
from attmask.evaluation.metrics.objects import strategy_masks
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.visualize import (
    SMALLEST_CELL,
    attention_sheet,
    colours,
    save_attention_pictures,
    top_mass,
)

DATA = DataConfig()


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=32, depth=2, heads=2)
    return build_backbone(config, image_size=48, channels=3)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    root = tmp_path_factory.mktemp("scenes")
    write_folder(root, train=10, val=1, size=48, seed=0)
    return open_images(root).train


def oklab_lightness(rgb: torch.Tensor) -> torch.Tensor:
    """Perceived lightness of 8-bit sRGB colours (Ottosson 2020)."""
    value = rgb.double() / 255
    linear = torch.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    to_lms = torch.tensor(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ],
        dtype=torch.float64,
    )
    cone = (linear @ to_lms.T) ** (1 / 3)
    return cone @ torch.tensor([0.2104542553, 0.7936177850, -0.0040720468], dtype=torch.float64)


def test_the_colour_map_gets_lighter_in_even_steps() -> None:
    lightness = oklab_lightness(colours(torch.linspace(0, 1, 65)[None])[0])
    steps = lightness.diff()
    assert (steps > 0).all()
    assert steps.std() / steps.mean() < 0.25
    straight = torch.linspace(float(lightness[0]), float(lightness[-1]), 65, dtype=torch.float64)
    assert (lightness - straight).abs().max() < 0.02


@given(seed=st.integers(0, 1000), mass=st.sampled_from([0.1, 0.6, 0.95]))
def test_the_top_mass_is_the_fewest_patches_that_hold_it(seed: int, mass: float) -> None:
    attention = torch.rand(2, 20, generator=torch.Generator().manual_seed(seed))
    kept = top_mass(attention, mass)
    for row, chosen in zip(attention, kept, strict=True):
        held, total = row[chosen].sum(), row.sum()
        assert held >= mass * total - 1e-5
        assert held - row[chosen].min() < mass * total + 1e-5
        assert row[chosen].min() >= row[~chosen].max()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(48, 48), (64, 96), (224, 224)])
def test_a_sheet_has_a_row_for_each_image_and_a_column_for_each_picture(
    channels: int, height: int, width: int
) -> None:
    grid = (height // 16, width // 16)
    patches = grid[0] * grid[1]
    images = torch.randint(0, 256, (2, channels, height, width), dtype=torch.uint8)
    attention = torch.rand(2, patches)
    masks = strategy_masks(attention, grid)
    plain = attention_sheet(images, attention, masks, grid=grid)
    with_heads = attention_sheet(
        images, attention, masks, grid=grid, heads=torch.rand(2, 3, patches)
    )
    one = attention_sheet(images[:1], attention[:1], {}, grid=grid)
    cell_width = with_heads.width - plain.width
    assert cell_width >= max(width, SMALLEST_CELL)
    assert plain.height - one.height >= max(height, SMALLEST_CELL)
    assert plain.width - one.width == 5 * cell_width


def test_hidden_patches_are_grey_and_the_others_are_the_image() -> None:
    images = torch.full((1, 3, 160, 160), 200, dtype=torch.uint8)
    mask = torch.zeros(1, 100, dtype=torch.bool)
    mask[0, 0] = mask[0, 55] = True
    sheet = attention_sheet(images, torch.rand(1, 100), {"some": mask}, grid=(10, 10))
    without = attention_sheet(images, torch.rand(1, 100), {}, grid=(10, 10))
    left, bottom = without.width - 6, sheet.height - 14
    cell = np.asarray(sheet)[bottom - 160 : bottom, left : left + 160]
    centres = cell[8::16, 8::16, 0]
    assert np.array_equal(centres.flatten() < 100, mask[0].numpy())
    assert (centres.flatten()[~mask[0].numpy()] == 200).all()


def test_even_attention_makes_an_even_map() -> None:
    images = torch.full((1, 3, 160, 160), 128, dtype=torch.uint8)
    even = attention_sheet(images, torch.full((1, 100), 0.01), {}, grid=(10, 10))
    cell = np.asarray(even)[-174:-14, -174:-14]
    assert len(np.unique(cell.reshape(-1, 3), axis=0)) == 1


def test_pictures_are_saved_in_sheets(backbone: Backbone, source: Source, tmp_path: Path) -> None:
    out = tmp_path / "new" / "pictures"
    files = save_attention_pictures(
        backbone, source, [0, 3, 4, 7, 9], out, image_size=48, data=DATA, rows=2
    )
    assert [file.name for file in files] == [f"attention_{n}.png" for n in (1, 2, 3)]
    heights = []
    for file in files:
        with Image.open(file) as sheet:
            sheet.load()
            heights.append(sheet.height)
    assert heights[0] == heights[1] > heights[2]


def test_the_same_network_draws_the_same_picture(
    backbone: Backbone, source: Source, tmp_path: Path
) -> None:
    first, again = (
        save_attention_pictures(
            backbone, source, [2, 5], tmp_path / name, image_size=48, data=DATA
        )[0].read_bytes()
        for name in ("first", "again")
    )
    assert first == again


@pytest.mark.parametrize("indices", [[], [10], [-1, 3]])
def test_images_that_are_not_there_are_refused(
    backbone: Backbone, source: Source, tmp_path: Path, indices: list[int]
) -> None:
    with pytest.raises(UserError, match="use indices from 0 to 9"):
        save_attention_pictures(backbone, source, indices, tmp_path, image_size=48, data=DATA)
