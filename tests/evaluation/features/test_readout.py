import pytest
import torch
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.features.readout import AttentionMaps, Embedding, PatchMaps, Readout
from attmask.models.backbone import Backbone
from tests.evaluation.models import tiny_backbone

IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def plain_outputs(images: Tensor, backbone: Backbone | None = None) -> list[Tensor]:
    """All tokens after each block, by timm's own modules where the image has the usual size."""
    vit = (backbone or tiny_backbone()).vit
    if backbone is None:
        x = vit.patch_embed(images)
        x = vit.norm_pre(vit.patch_drop(vit._pos_embed(x)))
    else:
        x = backbone._embed(images, None)
    outputs = []
    for block in vit.blocks:
        x = block(x)
        outputs.append(x)
    return outputs


def test_cls_is_that_of_the_last_block_after_the_final_norm() -> None:
    backbone = tiny_backbone()
    theirs = backbone.vit.norm(plain_outputs(IMAGES)[-1])[:, 0]
    torch.testing.assert_close(Embedding()(backbone, IMAGES), theirs, atol=1e-5, rtol=1e-5)


def test_cls_of_several_blocks_lies_side_by_side_the_last_block_last() -> None:
    backbone = tiny_backbone()
    theirs = torch.cat([backbone.vit.norm(x)[:, 0] for x in plain_outputs(IMAGES)], dim=1)
    ours = Embedding(blocks=2)(backbone, IMAGES)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
    assert ours.shape[1] == Embedding(blocks=2).width(backbone) == 48


@pytest.mark.parametrize("norm", [False, True])
def test_gap_is_the_mean_of_the_patches_without_the_final_norm_unless_asked(norm: bool) -> None:
    backbone = tiny_backbone()
    last = plain_outputs(IMAGES)[-1][:, 1:]
    theirs = (backbone.vit.norm(last) if norm else last).mean(dim=1)
    ours = Embedding(token="gap", norm_gap=norm)(backbone, IMAGES)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_cls_and_gap_lie_side_by_side_block_after_block() -> None:
    backbone = tiny_backbone()
    both = Embedding(token="cls+gap", blocks=2)
    cls, gap = (Embedding(token=token, blocks=2)(backbone, IMAGES) for token in ("cls", "gap"))
    ours = both(backbone, IMAGES)
    assert ours.shape == (3, both.width(backbone)) == (3, 96)
    for block in range(2):
        here = ours[:, 48 * block : 48 * (block + 1)]
        mine = slice(24 * block, 24 * (block + 1))
        assert torch.equal(here, torch.cat([cls[:, mine], gap[:, mine]], dim=1))
    last = Embedding(token="cls+gap")
    assert last.part_of(both.describe(backbone), backbone) == slice(48, 96)
    torch.testing.assert_close(last(backbone, IMAGES), ours[:, 48:], atol=1e-5, rtol=1e-5)


def test_more_blocks_than_there_are_cannot_be_read() -> None:
    with pytest.raises(UserError, match="blocks=3 is more than the network has, 2"):
        Embedding(blocks=3).width(tiny_backbone())


def test_patch_maps_are_the_patch_tokens_of_each_block_in_their_places() -> None:
    backbone = tiny_backbone()
    wide = torch.randn(2, 3, 16, 40, generator=torch.Generator().manual_seed(1))
    maps = PatchMaps(layers=(1, -1), norm=False)(backbone, wide)
    assert maps.shape == (2, *PatchMaps(layers=(1, -1)).shape(backbone, (16, 40)))
    assert maps.shape == (2, 2, 24, 2, 5)
    for layer, tokens in enumerate(plain_outputs(wide, backbone)):
        for row in range(2):
            for col in range(5):
                theirs = tokens[:, 1 + 5 * row + col]
                torch.testing.assert_close(
                    maps[:, layer, :, row, col], theirs, atol=1e-5, rtol=1e-5
                )


def test_normed_patch_maps_of_the_last_block_are_the_patches_of_the_network() -> None:
    backbone = tiny_backbone()
    theirs = backbone(IMAGES).patches
    ours = PatchMaps()(backbone, IMAGES)[:, 0].flatten(2).transpose(1, 2)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layer", [1, 2, -1, None])
def test_attention_maps_are_those_of_a_network_that_watches_this_layer(layer: int | None) -> None:
    number = {1: 1, 2: 2, -1: 2, None: 1}[layer]
    backbone = tiny_backbone()
    watching = Backbone(backbone.vit, layer=number)
    backbone = Backbone(backbone.vit, layer=1)
    each = AttentionMaps(layer=layer, heads="each")
    heads = watching.attention_heads(IMAGES)
    assert each.shape(backbone, (32, 32)) == (heads.shape[1], 4, 4)
    torch.testing.assert_close(each(backbone, IMAGES).flatten(2), heads)
    mean = AttentionMaps(layer=layer)(backbone, IMAGES)
    torch.testing.assert_close(mean.flatten(1), watching(IMAGES).attention)


@pytest.mark.parametrize(("size", "side"), [(32, 4), (36, 4), (30, 4), (24, 3), (3, 1)])
def test_attention_is_read_in_the_nearest_size_the_network_takes(size: int, side: int) -> None:
    backbone, readout = tiny_backbone(), AttentionMaps(fit=True)
    images = torch.rand(2, 3, size, size)
    found = readout(backbone, images)
    assert found.shape == (2, *readout.shape(backbone, (size, size))) == (2, side, side)
    if size % 8 == 0:
        torch.testing.assert_close(found.flatten(1), backbone(images).attention)


def test_layers_and_sizes_that_are_not_there_are_refused_in_one_line() -> None:
    backbone = tiny_backbone()
    for layer in (0, 3, -3):
        with pytest.raises(UserError, match=rf"layer {layer} does not exist; use 1 to 2, or"):
            PatchMaps(layers=(layer,)).shape(backbone, (32, 32))
    with pytest.raises(UserError, match="different sizes do not fit into one array"):
        PatchMaps().shape(backbone, None)
    with pytest.raises(UserError, match="image size 30 is not a multiple of patch size 8"):
        AttentionMaps().shape(backbone, (30, 30))


def test_every_field_of_a_readout_is_in_its_description() -> None:
    backbone = tiny_backbone()
    readouts: list[Readout] = [
        Embedding(),
        Embedding(token="gap"),
        Embedding(blocks=2),
        Embedding(token="gap", norm_gap=True),
        PatchMaps(),
        PatchMaps(norm=False),
        PatchMaps(layers=(1, 2)),
        AttentionMaps(),
        AttentionMaps(layer=1),
        AttentionMaps(heads="each"),
        AttentionMaps(fit=True),
    ]
    assert len({str(readout.describe(backbone)) for readout in readouts}) == len(readouts)
    assert PatchMaps(layers=(2,)).describe(backbone) == PatchMaps().describe(backbone)


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        (Embedding(), Embedding(blocks=2)),
        (Embedding(token="gap"), Embedding(token="gap", blocks=2)),
        (PatchMaps(), PatchMaps(layers=(1, 2))),
        (PatchMaps(layers=(1,), norm=False), PatchMaps(layers=(1, 2), norm=False)),
        (PatchMaps(layers=(1,)), PatchMaps(layers=(2, 1))),
    ],
)
def test_a_part_is_where_it_says_in_the_larger_readout(
    part: Embedding | PatchMaps, whole: Embedding | PatchMaps
) -> None:
    backbone = tiny_backbone()
    where = part.part_of(whole.describe(backbone), backbone)
    assert where is not None
    cut = whole(backbone, IMAGES)[:, where]
    torch.testing.assert_close(cut, part(backbone, IMAGES), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("readout", "other"),
    [
        (Embedding(), Embedding()),
        (Embedding(blocks=2), Embedding()),
        (Embedding(), Embedding(token="gap", blocks=2)),
        (Embedding(token="gap"), Embedding(token="gap", blocks=2, norm_gap=True)),
        (PatchMaps(), PatchMaps(layers=(1, 2), norm=False)),
        (PatchMaps(layers=(1, 2)), PatchMaps(layers=(2, 1))),
        (PatchMaps(), AttentionMaps()),
        (Embedding(), PatchMaps(layers=(1, 2))),
    ],
)
def test_what_is_no_part_of_another_readout_is_not_cut_out_of_it(
    readout: Embedding | PatchMaps, other: Readout
) -> None:
    backbone = tiny_backbone()
    assert readout.part_of(other.describe(backbone), backbone) is None
