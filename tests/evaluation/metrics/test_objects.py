from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from attmask.data.config import DataConfig
from attmask.data.source import Source
from attmask.data.sources import open_images
from attmask.data.synthetic import write_folder
from attmask.errors import UserError
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.images import ImageReader
from attmask.evaluation.metrics.objects import (
    BACKGROUND,
    OBJECT,
    UNKNOWN,
    Coverage,
    ObjectMasks,
    ObjectRegions,
    ObjectReport,
    attention_on_object,
    object_area,
    object_hidden,
    object_metrics,
    patch_coverage,
    strategy_masks,
)
from attmask.metric import values_by_key
from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from tests import real_data
from tests.evaluation.object_reports import objects_of

DATA = DataConfig()
PETS = real_data.FOLDER / "pets160"


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=32, depth=2, heads=2)
    return build_backbone(config, image_size=32, channels=3)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Source:
    root = tmp_path_factory.mktemp("scenes")
    write_folder(root, train=24, val=2, size=40, seed=0)
    return open_images(root).train


def scene(source: Source, size: int, index: int) -> tuple[Tensor, Tensor]:
    """The centre crop of an image, and of its region in the same place."""
    regions = ObjectRegions(ObjectMasks(source), size)
    crop, _, region = ImageReader(source, CenterCrop(size), DATA, regions)(index)
    return crop, region


def measure(
    backbone: Backbone,
    source: Source,
    *,
    batch_size: int = 64,
    workers: int = 0,
    max_images: int | None = None,
) -> ObjectReport:
    return objects_of(
        backbone,
        source,
        image_size=32,
        data=DATA,
        batch_size=batch_size,
        workers=workers,
        max_images=max_images,
    )


def write_pair(root: Path, kind: str, mask: np.ndarray, image: np.ndarray | None = None) -> Source:
    picture = np.zeros((*mask.shape, 3), np.uint8) if image is None else image
    for folder, pixels in ((root / "train", picture), (root / kind / "train", mask)):
        (folder / "cat").mkdir(parents=True)
        Image.fromarray(pixels).save(folder / "cat" / "1.png")
    return open_images(root).train


def test_a_patch_is_covered_by_the_share_of_its_object_pixels() -> None:
    regions = torch.full((1, 4, 6), BACKGROUND, dtype=torch.uint8)
    regions[0, :2, :2] = OBJECT
    regions[0, 0, 2] = OBJECT
    regions[0, 1, 2:4] = UNKNOWN
    coverage = patch_coverage(regions, 2)
    assert coverage.object.tolist() == [[1, 0.25, 0, 0, 0, 0]]
    assert coverage.known.tolist() == [[1, 0.5, 1, 1, 1, 1]]


def test_attention_all_on_the_object_is_one_and_even_attention_is_its_area() -> None:
    covered = torch.tensor([[1.0, 1.0, 0.0, 0.0, 0.5, 0.0]])
    coverage = Coverage(object=covered, known=torch.ones(1, 6))
    on_it = torch.tensor([[0.2, 0.4, 0.0, 0.0, 0.0, 0.0]])
    assert attention_on_object(on_it, coverage).item() == 1
    even = torch.full((1, 6), 0.1)
    torch.testing.assert_close(attention_on_object(even, coverage), object_area(coverage))
    assert object_area(coverage).item() == pytest.approx(2.5 / 6)


def test_unknown_pixels_count_for_neither_side() -> None:
    covered = torch.tensor([[1.0, 0.0, 0.0]])
    border = Coverage(object=covered, known=torch.tensor([[1.0, 1.0, 0.0]]))
    attention = torch.tensor([[0.3, 0.1, 0.6]])
    assert attention_on_object(attention, border).item() == pytest.approx(0.75)
    assert object_area(border).item() == 0.5


@settings(max_examples=20)
@given(seed=st.integers(0, 1000), ratio=st.sampled_from([0.1, 0.3, 0.5, 0.75]))
def test_a_mask_hides_between_nothing_and_all_of_the_object(seed: int, ratio: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    attention = torch.rand(3, 36, generator=draw)
    covered = (torch.rand(3, 36, generator=draw) - 0.4).clamp_min(0) + 1e-3
    coverage = Coverage(object=covered, known=torch.ones(3, 36))
    for mask in strategy_masks(attention, (6, 6), ratio=ratio, seed=seed).values():
        hidden = object_hidden(mask, coverage)
        assert ((hidden >= 0) & (hidden <= 1 + 1e-6)).all()
        both = hidden + object_hidden(~mask, coverage)
        torch.testing.assert_close(both, torch.ones(3))


def test_high_hides_an_object_that_is_attended_and_low_none_of_it() -> None:
    covered = torch.zeros(1, 36)
    covered[0, 7:17] = 1
    masks = strategy_masks(covered, (6, 6), ratio=0.3)
    coverage = Coverage(object=covered, known=torch.ones(1, 36))
    assert object_hidden(masks["high"], coverage).item() == 1
    assert object_hidden(masks["low"], coverage).item() == 0
    assert {name: int(mask.sum()) for name, mask in masks.items() if name != "block"} == {
        "high": 10,
        "hint": 9,
        "low": 10,
        "random": 10,
    }
    assert 0 < int(masks["block"].sum()) <= 10


def test_masks_do_not_depend_on_how_images_are_batched() -> None:
    attention = torch.rand(5, 36)
    whole = strategy_masks(attention, (6, 6))
    for name, mask in strategy_masks(attention[2:], (6, 6), first_image=2).items():
        assert torch.equal(mask, whole[name][2:])


def test_any_value_but_zero_in_a_mask_is_object(tmp_path: Path) -> None:
    mask = np.array([[0, 1], [255, 0]], np.uint8).repeat(20, 0).repeat(20, 1)
    source = write_pair(tmp_path, "masks", mask)
    region = ObjectMasks(source).region(0, (40, 40))
    assert np.array_equal(np.asarray(region), np.where(mask, OBJECT, BACKGROUND))


def test_a_trimap_knows_object_background_and_border(tmp_path: Path) -> None:
    trimap = np.array([[1, 2], [3, 1]], np.uint8).repeat(20, 0).repeat(20, 1)
    source = write_pair(tmp_path, "trimaps", trimap)
    region = ObjectMasks(source).region(0, (40, 40))
    expected = np.array([[OBJECT, BACKGROUND], [UNKNOWN, OBJECT]]).repeat(20, 0).repeat(20, 1)
    assert np.array_equal(np.asarray(region), expected)


def test_image_and_mask_are_cropped_alike(tmp_path: Path) -> None:
    mask = np.zeros((90, 131), np.uint8)
    mask[30:70, 50:100] = 255
    white_object = mask[..., None].repeat(3, 2)
    source = write_pair(tmp_path, "masks", mask, white_object)
    crop, region = scene(source, 48, 0)
    different = (crop[0] > 127) != (region == OBJECT)
    assert region.shape == (48, 48)
    assert int(different.sum()) == 0


def test_a_mask_of_another_size_than_its_image_is_refused(tmp_path: Path) -> None:
    image = np.zeros((40, 44, 3), np.uint8)
    source = write_pair(tmp_path, "masks", np.ones((40, 40), np.uint8), image)
    with pytest.raises(UserError, match="40 x 40 pixels, but its image has 44 x 40"):
        scene(source, 32, 0)


def test_images_without_known_objects_are_refused(backbone: Backbone, tmp_path: Path) -> None:
    source = write_pair(tmp_path, "masks", np.zeros((40, 40), np.uint8))
    with pytest.raises(UserError, match="shows an annotated object"):
        measure(backbone, source)
    (tmp_path / "masks" / "train" / "cat" / "1.png").unlink()
    assert len(ObjectMasks(source)) == 0
    with pytest.raises(UserError, match=r"masks/<split>/<class>/<id>\.png"):
        measure(backbone, source)


def test_images_without_object_pixels_are_left_out(backbone: Backbone, tmp_path: Path) -> None:
    write_folder(tmp_path, train=10, val=1, size=40, seed=0)
    source = open_images(tmp_path).train
    assert measure(backbone, source).images == 10
    file = ObjectMasks(source).files[3]
    Image.new("L", (40, 40)).save(file)
    ObjectMasks(source).files[5].unlink()
    assert measure(backbone, source).images == 8


def test_images_that_cannot_be_read_are_left_out(backbone: Backbone, tmp_path: Path) -> None:
    write_folder(tmp_path, train=10, val=1, size=40, seed=0)
    source = open_images(tmp_path).train
    kept = measure(backbone, source.subset([0, 1, 2, 3, 4, 6, 7, 8, 9]))
    Path(source.place(5)).write_bytes(b"no picture")
    found = measure(backbone, source)
    assert found.images == kept.images == 9
    assert found.attention_on_object == pytest.approx(kept.attention_on_object, abs=1e-6)


def test_the_report_does_not_depend_on_batches_or_workers(
    backbone: Backbone, scenes: Source
) -> None:
    whole = values_by_key(object_metrics(measure(backbone, scenes)))
    for other in (measure(backbone, scenes, batch_size=5), measure(backbone, scenes, workers=1)):
        assert values_by_key(object_metrics(other)) == pytest.approx(whole, rel=1e-5)


def test_the_report_agrees_with_the_images_measured_one_by_one(
    backbone: Backbone, scenes: Source
) -> None:
    report = measure(backbone, scenes)
    regions = torch.stack([scene(scenes, 32, i)[1] for i in range(len(scenes))])
    coverage = patch_coverage(regions, 8)
    assert report.object_area == pytest.approx(float(coverage.object.mean()), rel=1e-5)
    assert report.patches_hidden["high"] == report.patches_hidden["random"] == 4 / 16
    assert report.patches_hidden["block"] <= 0.3
    assert report.lift == report.attention_on_object / report.object_area


def test_shares_are_reported_in_per_cent(backbone: Backbone, scenes: Source) -> None:
    report = measure(backbone, scenes, max_images=10)
    metrics = {metric.key: metric for metric in object_metrics(report)}
    assert (metrics["objects.images"].value, metrics["objects.images"].unit) == (10, "images")
    assert metrics["objects.attention"].value == 100 * report.attention_on_object
    assert metrics["objects.attention"].higher_is_better
    assert metrics["objects.lift"].value == report.lift
    for name in ("high", "hint", "low", "random", "block"):
        assert metrics[f"objects.hidden_{name}"].value == 100 * report.object_hidden[name]
        assert metrics[f"objects.patches_{name}"].value == 100 * report.patches_hidden[name]
    shares = [m for key, m in metrics.items() if key not in ("objects.images", "objects.lift")]
    assert {metric.unit for metric in shares} == {"%"}


@real_data.needs("pets160")
def test_pets_cover_half_of_their_photographs(backbone: Backbone) -> None:
    source = open_images(PETS).val
    assert source is not None
    report = measure(backbone, source, max_images=74)
    assert report.images == 74
    assert 0.4 < report.object_area < 0.65
