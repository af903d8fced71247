import copy

import torch
from torch import Tensor

from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.heads import HeadConfig
from attmask.models.network import Network
from tests.reference import reference_network, tensors, weights


def network(*, shared: bool) -> Network:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", patch_size=8, width=24, depth=1, heads=3)
    backbone = build_backbone(config, image_size=16, channels=3)
    head = HeadConfig(prototypes=20, hidden=16, bottleneck=8, shared=shared)
    return Network(backbone, head)


def tokens(count: int, seed: int) -> Tensor:
    return torch.randn(count, 24, generator=torch.Generator().manual_seed(seed))


def test_the_reference_has_no_weight_that_we_do_not_have() -> None:
    ours = dict(reference_network().named_parameters())
    theirs = weights("network")
    assert set(ours) == set(theirs)
    assert {name: p.shape for name, p in ours.items()} == {n: w.shape for n, w in theirs.items()}


def test_images_become_the_references_scores() -> None:
    golden, ours = tensors("network"), reference_network()
    with torch.no_grad():
        seen = ours.backbone(golden["images"])
        cls, patches = ours.score(seen.cls, seen.patches.flatten(0, 1))
    torch.testing.assert_close(cls, golden["head_cls"], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(patches, golden["head_patch"].flatten(0, 1), rtol=1e-4, atol=1e-4)


def test_a_shared_head_scores_both_kinds_of_token_at_once() -> None:
    made = network(shared=True)
    assert made.patch_head is made.head
    cls, patches = made.score(tokens(3, 1), tokens(5, 2))
    torch.testing.assert_close(cls, made.head(tokens(3, 1)))
    torch.testing.assert_close(patches, made.head(tokens(5, 2)))


def test_separate_heads_score_their_own_kind_of_token() -> None:
    made = network(shared=False)
    cls, patches = made.score(tokens(3, 1), tokens(5, 2))
    assert torch.equal(cls, made.head(tokens(3, 1)))
    assert torch.equal(patches, made.patch_head(tokens(5, 2)))
    assert (patches - made.head(tokens(5, 2))).abs().max() > 1e-3


def test_without_patches_only_cls_is_scored() -> None:
    for shared in (True, False):
        cls, patches = network(shared=shared).score(tokens(3, 1), tokens(0, 2))
        assert cls.shape == (3, 20)
        assert patches.shape == (0, 20)


def test_the_last_layers_are_those_of_every_head_and_each_counts_once() -> None:
    for shared, heads in ((True, ["head"]), (False, ["head", "own_patch_head"])):
        made = network(shared=shared)
        last = {id(parameter) for parameter in made.last_layers()}
        names = {name for name, p in made.named_parameters() if id(p) in last}
        assert names == {
            f"{head}.last_layer.parametrizations.weight.original{part}"
            for head in heads
            for part in (0, 1)
        }
        assert len(made.last_layers()) == len(names)


def test_a_copy_shares_its_own_head_and_not_the_originals() -> None:
    made = network(shared=True)
    twin = copy.deepcopy(made)
    assert twin.patch_head is twin.head
    assert twin.head is not made.head
