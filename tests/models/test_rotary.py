"""The angles of rotary positions against timm's."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from timm.layers import apply_rot_embed_cat
from timm.models.vision_transformer import VisionTransformer

from attmask.models.rotary import angles_of, angles_of_all, prepare_
from tests.models.rotary_networks import eva, small_eva, timms_angles

CPU = torch.device("cpu")


@given(rows=st.integers(1, 40), cols=st.integers(1, 40))
def test_angles_are_timms_on_any_grid(rows: int, cols: int) -> None:
    vit = small_eva(depth=1)
    angles = angles_of(vit, (rows, cols), CPU)
    assert angles is not None
    assert torch.equal(angles, timms_angles(vit, rows, cols))


def test_a_network_with_position_embeddings_has_no_angles() -> None:
    vit = VisionTransformer(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3)
    assert angles_of(vit, (4, 4), CPU) is None


def test_tokens_without_a_place_are_not_turned() -> None:
    rope = angles_of(small_eva(depth=1), (2, 3), CPU)
    assert rope is not None
    x = torch.randn(2, 3, 11, 8)
    turned = apply_rot_embed_cat(x, angles_of_all(rope, 11), half=True)
    assert torch.equal(turned[:, :, :5], x[:, :, :5])
    assert torch.equal(turned[:, :, 5:], apply_rot_embed_cat(x[:, :, 5:], rope, half=True))
    assert (turned[:, :, 5:] - x[:, :, 5:]).abs().amax((0, 1, 3)).min() > 1e-3


def test_random_changes_of_positions_are_turned_off() -> None:
    vit = small_eva(rope_shift_coords=0.5, rope_jitter_coords=2.0, rope_rescale_coords=2.0).train()
    images = torch.randn(1, 3, 32, 32)
    assert not torch.equal(vit.forward_features(images), vit.forward_features(images))
    prepare_(vit)
    assert torch.equal(vit.forward_features(images), vit.forward_features(images))


def test_a_network_without_values_gets_those_that_no_file_holds() -> None:
    whole = eva("vit_small_patch16_dinov3_qkvb")
    with torch.device("meta"):
        empty = eva("vit_small_patch16_dinov3_qkvb")
        prepare_(empty)
    empty.load_state_dict(whole.state_dict(), assign=True)
    images = torch.randn(1, 3, 64, 64)
    assert torch.equal(empty.forward_features(images), whole.forward_features(images))
