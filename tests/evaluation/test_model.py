from dataclasses import replace

import pytest
import torch

from attmask.evaluation.model import Prototypes
from attmask.losses import sinkhorn
from attmask.models.backbone import build_backbone
from tests.evaluation.models import TINY, tiny_model


def test_a_digest_tells_networks_apart_and_nothing_else() -> None:
    digest = tiny_model(0).digest
    assert digest == tiny_model(0, name="other").digest
    assert digest != tiny_model(1).digest
    touched = tiny_model(0)
    with torch.no_grad():
        next(touched.backbone.parameters()).view(-1)[0] += 1e-6
    assert touched.digest != digest


def test_a_digest_knows_what_the_weights_do_not_show() -> None:
    one, other = tiny_model(), tiny_model()
    other.backbone.layer = 0
    assert one.digest != other.digest
    other.backbone.layer = one.backbone.layer
    backbone = build_backbone(TINY.model_copy(update={"heads": 4}), image_size=32, channels=3)
    backbone.load_state_dict(one.backbone.state_dict())
    assert replace(one, backbone=backbone).digest != one.digest


def test_assignments_are_the_teachers_sharpened_logits() -> None:
    model = tiny_model()
    assert model.prototypes is not None
    cls = torch.randn(4, 24, generator=torch.Generator().manual_seed(0))
    logits = model.prototypes.head(cls)
    torch.testing.assert_close(model.prototypes.assign(cls), (logits / 0.07).softmax(-1))


def balancing(temperature: float) -> Prototypes:
    """Of a run that balances its targets; the centre must not matter."""
    prototypes = tiny_model().prototypes
    assert prototypes is not None
    centre = torch.randn(8, generator=torch.Generator().manual_seed(1))
    return replace(prototypes, centre=centre, temperature=temperature, centring="sinkhorn")


@pytest.mark.parametrize("temperature", [0.005, 0.07])
@pytest.mark.parametrize("images", [1, 5, 40])
def test_balanced_assignments_are_those_of_the_training_however_they_are_split(
    temperature: float, images: int
) -> None:
    prototypes = balancing(temperature)
    cls = torch.randn(images, 24, generator=torch.Generator().manual_seed(0))
    expected = sinkhorn(prototypes.head(cls), temperature)
    torch.testing.assert_close(prototypes.assign(cls), expected, atol=1e-5, rtol=1e-4)
    pieces = torch.cat(list(prototypes.assign_pieces(cls.split(7))))
    torch.testing.assert_close(pieces, expected, atol=1e-5, rtol=1e-4)


def test_balanced_assignments_depend_on_the_images_beside() -> None:
    cls = torch.randn(9, 24, generator=torch.Generator().manual_seed(0))
    assert not torch.allclose(balancing(0.07).assign(cls)[:4], balancing(0.07).assign(cls[:4]))
    usual = replace(balancing(0.07), centring="mean")
    torch.testing.assert_close(usual.assign(cls)[:4], usual.assign(cls[:4]))
