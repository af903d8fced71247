import pytest
import torch
from torch import Tensor

from attmask.errors import UserError
from attmask.evaluation.features.readout import Embedding
from tests.evaluation.models import tiny_backbone

IMAGES = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def plain_outputs(images: Tensor) -> list[Tensor]:
    """All tokens after each block, by timm's own modules."""
    vit = tiny_backbone().vit
    x = vit.patch_embed(images)
    x = vit.norm_pre(vit.patch_drop(vit._pos_embed(x)))
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


def test_more_blocks_than_there_are_cannot_be_read() -> None:
    with pytest.raises(UserError, match="last 3 blocks were asked for, the network has 2"):
        Embedding(blocks=3).width(tiny_backbone())
