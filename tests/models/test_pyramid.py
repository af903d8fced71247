"""The pyramid: which blocks it reads, at which strides, and every value by plain steps."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from jaxtyping import Float64
from torch import Tensor, nn

from attmask.models.backbone import Backbone, BackboneConfig, build_backbone
from attmask.models.pyramid import Pyramid, pyramid_layers

WIDTH, DEPTH = 24, 6


def backbone_of(patch_size: int, *, depth: int = DEPTH, registers: int = 0) -> Backbone:
    torch.manual_seed(0)
    config = BackboneConfig(
        patch_size=patch_size,
        width=WIDTH,
        depth=depth,
        heads=3,
        registers=registers,
        init_std=0.2,
    )
    return build_backbone(config, image_size=4 * patch_size, channels=3)


def pyramid_of(backbone: Backbone, *, norm: bool = False) -> Pyramid:
    torch.manual_seed(1)
    return Pyramid(backbone.width, backbone.patch_size, backbone.depth, norm=norm)


def pictures(height: int, width: int, count: int = 2) -> Tensor:
    return torch.randn(count, 3, height, width, generator=torch.Generator().manual_seed(2))


def some_drop_path(depth: int = DEPTH, images: int = 2) -> Float64[np.ndarray, "L 2 B"]:
    return np.random.default_rng(3).integers(0, 2, (depth, 2, images)) * 1.25


def gradients(network: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in network.named_parameters() if p.grad is not None}


# --- which blocks


@pytest.mark.parametrize(
    ("depth", "layers"),
    [
        (12, (4, 6, 8, 12)),  # blocks 3, 5, 7 and 11 from 0, as in iBOT and BEiT-B
        (24, (8, 12, 16, 24)),  # blocks 7, 11, 15 and 23 from 0, as in BEiT-L
        (6, (2, 3, 4, 6)),
        (4, (1, 2, 3, 4)),
        (3, (1, 1, 2, 3)),
        (2, (1, 1, 2, 2)),
        (1, (1, 1, 1, 1)),
    ],
)
def test_the_blocks_of_some_depths(depth: int, layers: tuple[int, ...]) -> None:
    assert pyramid_layers(depth) == layers
    assert Pyramid(8, 16, depth).layers == layers


def test_blocks_rise_and_differ_from_four_blocks_on() -> None:
    for depth in range(4, 60):
        layers = pyramid_layers(depth)
        assert sorted(set(layers)) == list(layers)
        assert layers[0] >= 1
        assert layers[-1] == depth


# --- shapes


@pytest.mark.parametrize(
    ("patch_size", "strides"),
    [(16, (4, 8, 16, 32)), (8, (4, 8, 16, 32)), (14, (3.5, 7, 14, 28))],
)
def test_the_strides_are_the_image_divided_by_the_maps(
    patch_size: int, strides: tuple[float, ...]
) -> None:
    backbone = backbone_of(patch_size)
    pyramid = pyramid_of(backbone)
    height, width = 8 * patch_size, 4 * patch_size
    maps = pyramid(backbone, pictures(height, width))
    assert pyramid.strides == strides
    assert [tuple(level.shape) for level in maps] == [
        (2, WIDTH, height / stride, width / stride) for stride in strides
    ]


@pytest.mark.parametrize(("patch_size", "coarsest"), [(16, (2, 2)), (8, (1, 1))])
def test_pooling_covers_the_last_row_and_column_of_odd_grids(
    patch_size: int, coarsest: tuple[int, int]
) -> None:
    backbone = backbone_of(patch_size)
    pyramid = pyramid_of(backbone)
    maps = pyramid(backbone, pictures(3 * patch_size, 3 * patch_size))
    assert tuple(maps[3].shape[-2:]) == coarsest
    tokens = backbone.outputs(pictures(3 * patch_size, 3 * patch_size), (DEPTH,))[0, :, 1:]
    torch.testing.assert_close(maps[3].amax((2, 3)), tokens.amax(1))


@pytest.mark.parametrize("patch_size", [8, 16])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_one_patch_and_few_blocks_still_give_four_maps(patch_size: int, depth: int) -> None:
    backbone = backbone_of(patch_size, depth=depth)
    maps = pyramid_of(backbone)(backbone, pictures(patch_size, patch_size))
    assert len(maps) == 4
    assert tuple(maps[3].shape) == (2, WIDTH, 1, 1)


def test_the_parameters_are_three_transposed_convolutions_and_a_batch_norm() -> None:
    deconvolution = 4 * WIDTH**2 + WIDTH
    for patch_size, count in ((16, 3 * deconvolution + 2 * WIDTH), (8, deconvolution)):
        pyramid = Pyramid(WIDTH, patch_size, DEPTH)
        assert sum(p.numel() for p in pyramid.parameters()) == count


# --- values


def by_hand(backbone: Backbone, pyramid: Pyramid, images: Tensor) -> list[Tensor]:
    """The maps of patches of 16, with timm's blocks and plain operations."""
    vit, rows = backbone.vit, images.shape[-2] // 16
    x = backbone._embed(images, None)
    maps = []
    for number, block in enumerate(vit.blocks, start=1):
        x = block(x)
        if number in (2, 3, 4, 6):
            y = vit.norm(x) if pyramid.norm else x
            y = y[:, backbone.prefix :].transpose(1, 2)
            maps.append(y.reshape(len(images), WIDTH, rows, -1))
    w = dict(pyramid.rescale.named_parameters())
    first = F.conv_transpose2d(maps[0], w["0.0.weight"], w["0.0.bias"], stride=2)
    mean, variance = first.mean((0, 2, 3), True), first.var((0, 2, 3), False, keepdim=True)
    first = F.gelu((first - mean) / (variance + 1e-5).sqrt())
    first = F.conv_transpose2d(first, w["0.3.weight"], w["0.3.bias"], stride=2)
    second = F.conv_transpose2d(maps[1], w["1.weight"], w["1.bias"], stride=2)
    return [first, second, maps[2], F.max_pool2d(maps[3], 2)]


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("registers", [0, 2])
def test_the_maps_equal_plain_operations(norm: bool, registers: int) -> None:
    backbone = backbone_of(16, registers=registers)
    pyramid, images = pyramid_of(backbone, norm=norm), pictures(64, 96)
    theirs = by_hand(backbone, pyramid, images)
    for ours, plain in zip(pyramid(backbone, images), theirs, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-4)


def test_small_patches_are_enlarged_once_and_pooled_by_two_and_four() -> None:
    backbone = backbone_of(8)
    pyramid, images = pyramid_of(backbone), pictures(64, 32)
    maps = pyramid(backbone, images)
    tokens = backbone.outputs(images, (2, 3, 4, 6))[:, :, 1:].transpose(2, 3).unflatten(3, (8, 4))
    torch.testing.assert_close(maps[0], pyramid.rescale[0](tokens[0]))
    torch.testing.assert_close(maps[1], tokens[1])
    torch.testing.assert_close(maps[2], F.max_pool2d(tokens[2], 2))
    torch.testing.assert_close(maps[3], F.max_pool2d(tokens[3], 4))


def test_drop_path_acts_on_every_block_before_a_map() -> None:
    backbone = backbone_of(16)
    pyramid, images, keep = pyramid_of(backbone), pictures(64, 64), some_drop_path()
    x, outputs = backbone._embed(images, None), []
    for block, factors in zip(backbone.blocks, keep, strict=True):
        x = block(x, keep=factors)
        outputs.append(x[:, 1:])
    third = pyramid(backbone, images, keep)[2]
    torch.testing.assert_close(third.flatten(2).transpose(1, 2), outputs[3])
    assert not torch.allclose(third, pyramid(backbone, images)[2])


# --- gradients


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("patch_size", [8, 16])
def test_every_trained_parameter_has_a_gradient(norm: bool, patch_size: int) -> None:
    backbone = backbone_of(patch_size)
    pyramid = pyramid_of(backbone, norm=norm)
    pyramid.freeze_unused_(backbone)
    maps = pyramid(backbone, pictures(64, 64), some_drop_path())
    sum(level.square().sum() for level in maps).backward()
    named = [*backbone.named_parameters(), *pyramid.named_parameters()]
    assert [n for n, p in named if p.requires_grad and p.grad is None] == []
    frozen = {n for n, p in named if not p.requires_grad}
    assert frozen == {"mask_token"} | (set() if norm else {"vit.norm.weight", "vit.norm.bias"})


def test_recomputed_blocks_give_the_same_gradients() -> None:
    found = []
    for recompute in (False, True):
        backbone = backbone_of(16)
        if recompute:
            backbone.recompute_blocks()
        maps = pyramid_of(backbone)(backbone, pictures(64, 64), some_drop_path())
        sum(level.square().sum() for level in maps).backward()
        found.append(gradients(backbone))
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, msg=name)
