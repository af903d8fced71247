from dataclasses import replace

import torch

from attmask.models.backbone import build_backbone
from tests.evaluation.subjects import TINY, tiny_subject


def test_a_digest_tells_networks_apart_and_nothing_else() -> None:
    digest = tiny_subject(0).digest
    assert digest == tiny_subject(0, name="other").digest
    assert digest != tiny_subject(1).digest
    touched = tiny_subject(0)
    with torch.no_grad():
        next(touched.backbone.parameters()).view(-1)[0] += 1e-6
    assert touched.digest != digest


def test_a_digest_knows_what_the_weights_do_not_show() -> None:
    one, other = tiny_subject(), tiny_subject()
    other.backbone.layer = 0
    assert one.digest != other.digest
    other.backbone.layer = one.backbone.layer
    backbone = build_backbone(TINY.model_copy(update={"heads": 4}), image_size=32, channels=3)
    backbone.load_state_dict(one.backbone.state_dict())
    assert replace(one, backbone=backbone).digest != one.digest


def test_assignments_are_the_teachers_sharpened_scores() -> None:
    subject = tiny_subject()
    assert subject.prototypes is not None
    cls = torch.randn(4, 24, generator=torch.Generator().manual_seed(0))
    scores = subject.prototypes.head(cls)
    torch.testing.assert_close(subject.prototypes.assign(cls), (scores / 0.07).softmax(-1))
