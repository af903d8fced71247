"""What is said of a network without labels: assignments, views, and the whole protocol."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attmask.data.config import DataConfig
from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.datasets.pictures import Pictures, Shown
from attmask.evaluation.features.crops import CenterCrop, Crop, RandomResizedCrop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding, Readout
from attmask.evaluation.metrics.geometry import alignment
from attmask.evaluation.model import FrozenModel, Prototypes
from attmask.evaluation.protocols import label_free as quality
from attmask.evaluation.protocols.label_free import (
    Assignments,
    Quality,
    assignments,
    common_images,
)
from attmask.hardware import Precision
from attmask.losses import sinkhorn
from attmask.models.backbone import BackboneConfig, build_backbone
from attmask.models.heads import Head, HeadConfig
from tests.real_data import FOLDER, needs

CPU = torch.device("cpu")
ALL = [f"label_free.{measure}" for measure in ("rank", "rank_share", "alignment", "uniformity")]
OF_A_TEACHER = [f"label_free.{measure}" for measure in ("entropy", "used", "dead")]


@pytest.fixture(scope="module")
def model() -> FrozenModel:
    torch.manual_seed(0)
    config = BackboneConfig(name="vit_tiny_patch16_224", width=24, depth=2, heads=2, patch_size=8)
    backbone = build_backbone(config, image_size=32, channels=3)
    head = Head(24, HeadConfig(prototypes=12, hidden=16, bottleneck=8))
    prototypes = Prototypes(head, torch.zeros(12), temperature=0.04)
    return FrozenModel("tiny", backbone, 32, DataConfig(), prototypes)


@pytest.fixture
def extractor(tmp_path: Path) -> FeatureExtractor:
    return FeatureExtractor(
        device=CPU, precision=Precision.choose("fp32", CPU), cache=tmp_path / "cache"
    )


@pytest.fixture(scope="module")
def val(scenes: Path) -> Source:
    return Pictures().open(scenes).images


def plain(rows: list[list[float]]) -> tuple[float, float, float]:
    """Entropy, prototypes used and dead ones, number by number."""

    def entropy(shares: list[float]) -> float:
        return -sum(share * math.log(share) for share in shares if share > 0)

    mean = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    first = {max(range(len(row)), key=row.__getitem__) for row in rows}
    own = sum(map(entropy, rows)) / len(rows)
    return own, math.exp(entropy(mean)), 1 - len(first) / len(mean)


@given(images=st.integers(1, 20), prototypes=st.integers(1, 9), seed=st.integers(0, 1000))
def test_assignments_equal_plain_sums(images: int, prototypes: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    shares = (3 * torch.randn(images, prototypes, generator=draw)).softmax(dim=1)
    found = Assignments.over(shares.split(7))
    expected = plain(shares.double().tolist())
    assert (found.entropy, found.used, found.dead) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert found.prototypes == prototypes


def test_sharp_and_balanced_assignments_use_all_prototypes_and_blunt_ones_too() -> None:
    sharp = Assignments.over([torch.eye(6).repeat(2, 1)])
    assert (sharp.entropy, sharp.dead) == (0, 0)
    assert sharp.used == pytest.approx(6)
    blunt = Assignments.over([torch.full((10, 6), 1 / 6)])
    assert blunt.entropy == pytest.approx(math.log(6))
    assert blunt.used == pytest.approx(6)
    assert blunt.dead == pytest.approx(5 / 6), "of equals the first is chosen"


def test_a_collapsed_teacher_uses_one_prototype() -> None:
    collapsed = Assignments.over([torch.eye(6)[[2, 2, 2]]] * 3)
    assert (collapsed.entropy, collapsed.used) == (0, 1)
    assert collapsed.dead == pytest.approx(5 / 6)


def test_assignments_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UserError, match="not finite; its training diverged"):
        Assignments.over([torch.full((3, 4), torch.nan)])


@pytest.mark.parametrize("centring", ["mean", "sinkhorn"])
def test_pieces_do_not_change_the_assignments(
    model: FrozenModel, monkeypatch: pytest.MonkeyPatch, centring: Literal["mean", "sinkhorn"]
) -> None:
    assert model.prototypes is not None
    prototypes = replace(model.prototypes, centring=centring)
    features = torch.randn(33, 24, generator=torch.Generator().manual_seed(0))
    whole = assignments(prototypes, features)
    monkeypatch.setattr(quality, "_PROBABILITIES_AT_ONCE", 12 * 5)
    pieces = assignments(prototypes, features)
    assert (pieces.entropy, pieces.used) == pytest.approx((whole.entropy, whole.used), rel=1e-6)
    assert pieces.dead == whole.dead


def test_numbers_come_in_order_and_are_of_the_cached_features(
    model: FrozenModel, val: Source, extractor: FeatureExtractor
) -> None:
    found = Quality().measure(model, Shown(val), extractor)
    assert list(found.values) == ALL + OF_A_TEACHER
    vectors = extractor.features(model, val, CenterCrop(32)).vectors
    values = torch.linalg.svdvals(vectors.double())
    shares = values / values.sum() + 1e-7
    rank = float((-shares * shares.log()).sum().exp())
    assert found.values["label_free.rank"] == pytest.approx(rank, rel=1e-6)
    assert found.values["label_free.rank_share"] == pytest.approx(100 * rank / 24)
    assert model.prototypes is not None
    with torch.no_grad():
        own, used, dead = plain(model.prototypes.assign(vectors).tolist())
    assert [found.values[name] for name in OF_A_TEACHER] == pytest.approx(
        [own, used, 100 * dead], rel=1e-4
    )
    assert len(list(extractor.cache.iterdir())) == 3, "centre crops and two views"
    assert found.notes == ("The rank cannot exceed the number of images, 20 (width 24).",)


def test_a_backbone_without_head_has_no_assignments_and_says_so(
    model: FrozenModel, val: Source, extractor: FeatureExtractor
) -> None:
    bare = FrozenModel("bare", model.backbone, 32, model.data)
    found = Quality().measure(bare, Shown(val), extractor)
    assert list(found.values) == ALL
    assert "has no projection head" in found.notes[-1]


def test_a_teacher_that_balances_is_measured_by_what_it_teaches_and_it_is_said(
    model: FrozenModel, val: Source, extractor: FeatureExtractor
) -> None:
    assert model.prototypes is not None
    balanced = replace(model, prototypes=replace(model.prototypes, centring="sinkhorn"))
    found = Quality().measure(balanced, Shown(val), extractor)
    vectors = extractor.features(model, val, CenterCrop(32)).vectors
    with torch.no_grad():
        shares = sinkhorn(model.prototypes.head(vectors), temperature=0.04)
    own, used, dead = plain(shares.tolist())
    assert [found.values[name] for name in OF_A_TEACHER] == pytest.approx(
        [own, used, 100 * dead], rel=1e-4
    )
    assert "Assignments are balanced over all 20 images" in found.notes[-1]


def views(rows: list[int] | None, vectors: torch.Tensor) -> Features:
    kept = vectors if rows is None else vectors[rows]
    return Features(kept, None, None if rows is None else torch.tensor(rows))


@pytest.mark.parametrize(
    ("first", "second", "common"),
    [
        (None, None, [0, 1, 2, 3, 4]),
        ([0, 2, 3], [0, 2, 3], [0, 2, 3]),
        ([0, 2, 3], [1, 2, 3, 4], [2, 3]),
        (None, [1, 4], [1, 4]),
        ([3], None, [3]),
    ],
)
def test_two_views_are_paired_by_image_and_not_by_place(
    first: list[int] | None, second: list[int] | None, common: list[int]
) -> None:
    one, other = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    ours, theirs = common_images(views(first, one), views(second, other))
    assert torch.equal(ours, one[common])
    assert torch.equal(theirs, other[common])


def test_views_without_a_common_image_are_refused() -> None:
    with pytest.raises(UserError, match="no image could be read for both views"):
        common_images(views([0, 1], torch.eye(4)), views([2, 3], torch.eye(4)))


def test_images_read_for_one_view_only_are_left_out_of_the_alignment(
    model: FrozenModel, val: Source, extractor: FeatureExtractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = FeatureExtractor.features
    lost = {"images": [], "first views": [0, 7], "second views": [3, 7]}

    def partly(
        self: FeatureExtractor,
        model: FrozenModel,
        source: Source,
        crop: Crop,
        readout: Readout,
        about: str = "images",
    ) -> Features:
        rows = [i for i in range(len(source)) if i not in lost[about]]
        return views(rows, whole(self, model, source, crop, readout, about).vectors)

    usual = Quality().measure(model, Shown(val), extractor)
    both = [i for i in range(20) if i not in (0, 3, 7)]
    expected = alignment(
        *(
            extractor.features(model, val, RandomResizedCrop(32, 0.25, view=view)).vectors[both]
            for view in (0, 1)
        )
    )
    monkeypatch.setattr(FeatureExtractor, "features", partly)
    found = Quality().measure(model, Shown(val), extractor)
    assert found.values["label_free.alignment"] == pytest.approx(expected, rel=1e-6)
    assert found.values["label_free.rank"] == pytest.approx(usual.values["label_free.rank"])
    assert "Alignment uses the 17 images that could be read for both views." in found.notes


def test_another_readout_changes_the_rank_but_not_the_assignments(
    model: FrozenModel, val: Source, extractor: FeatureExtractor
) -> None:
    usual = Quality().measure(model, Shown(val), extractor)
    wide = Quality(readout=Embedding(token="gap", blocks=2)).measure(model, Shown(val), extractor)
    assert wide.details["width"] == 48
    assert wide.values["label_free.rank"] != usual.values["label_free.rank"]
    for name in OF_A_TEACHER:
        assert wide.values[name] == usual.values[name]


def notes_of(numbers: Mapping[str, float], notes: tuple[str, ...]) -> str:
    assert all(math.isfinite(number) for number in numbers.values())
    return " ".join(notes)


def test_one_image_is_measured_but_makes_no_pair(
    model: FrozenModel, val: Source, extractor: FeatureExtractor
) -> None:
    found = Quality().measure(model, Shown(val.subset([0])), extractor)
    notes = notes_of(found.values, found.notes)
    assert "label_free.uniformity" not in found.values
    assert "there is only one image" in notes
    assert "At most 1 of 12 prototypes can be used" in notes
    assert found.values["label_free.rank"] == pytest.approx(1, abs=1e-4)
    assert found.values["label_free.dead"] == pytest.approx(100 * 11 / 12)


def test_two_identical_images_are_one_direction(
    model: FrozenModel, val: Source, extractor: FeatureExtractor
) -> None:
    found = Quality().measure(model, Shown(val.subset([0, 0])), extractor)
    assert found.values["label_free.rank"] == pytest.approx(1, abs=1e-3)
    assert found.values["label_free.uniformity"] == pytest.approx(0, abs=1e-5)


@needs("photos")
def test_real_photographs_are_measured(model: FrozenModel, extractor: FeatureExtractor) -> None:
    shown = Pictures(max_images=12).open(FOLDER / "photos")
    numbers = Quality().measure(model, shown, extractor).values
    assert 1 < numbers["label_free.rank"] <= 12
    assert 0 < numbers["label_free.alignment"] < 2
    assert -4 < numbers["label_free.uniformity"] < 0
