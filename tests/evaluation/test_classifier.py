from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from attmask.errors import UserError
from attmask.evaluation.classifier import LinearClassifier
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import Embedding
from tests.evaluation.models import tiny_backbone


def classifier(classes: int = 3, width: int = 4, seed: int = 0) -> LinearClassifier:
    draw = torch.Generator().manual_seed(seed)
    return LinearClassifier(
        weight=torch.randn(classes, width, generator=draw),
        bias=torch.randn(classes, generator=draw),
        classes=tuple(f"class {c} é" for c in range(classes)),
        readout=Embedding(blocks=2, token="gap"),
        image_size=96,
        network="abcdef0123456789",
        rate=0.1 + 0.2,
    )


def features(images: int, classes: int = 3, width: int = 4, seed: int = 1) -> Features:
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (images,), generator=draw)
    return Features(torch.randn(images, width, generator=draw), labels)


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    before = classifier()
    before.save(tmp_path / "new" / "folder" / "c.safetensors")
    after = LinearClassifier.load(
        tmp_path / "new" / "folder" / "c.safetensors", network=before.network
    )
    assert torch.equal(after.weight, before.weight)
    assert torch.equal(after.bias, before.bias)
    assert (after.classes, after.readout, after.image_size, after.network, after.rate) == (
        before.classes,
        before.readout,
        before.image_size,
        before.network,
        before.rate,
    )
    assert (
        after.describe()
        == before.describe()
        == {"sha256": before.digest, "rate": 0.1 + 0.2, "classes": 3}
    )
    assert [f.name for f in (tmp_path / "new" / "folder").iterdir()] == ["c.safetensors"]


def test_a_classifier_of_another_network_is_refused_with_both_names(tmp_path: Path) -> None:
    classifier().save(tmp_path / "c.safetensors")
    with pytest.raises(UserError, match="on network abcdef01, but this one is 99999999"):
        LinearClassifier.load(tmp_path / "c.safetensors", network="9" * 64)


def test_classifiers_with_other_weights_have_another_hash() -> None:
    one = classifier()
    assert one.digest == classifier().digest
    assert one.digest != replace(one, bias=one.bias + 1).digest
    assert one.digest != replace(one, weight=-one.weight).digest


def test_a_rate_that_nobody_knows_stays_unknown(tmp_path: Path) -> None:
    replace(classifier(), rate=None).save(tmp_path / "c.safetensors")
    found = LinearClassifier.load(tmp_path / "c.safetensors", network="abcdef0123456789")
    assert found.rate is None


def test_a_classifier_of_crops_of_another_size_is_refused(tmp_path: Path) -> None:
    file, network = tmp_path / "c.safetensors", "abcdef0123456789"
    classifier().save(file)
    assert LinearClassifier.load(file, network=network, image_size=96).image_size == 96
    with pytest.raises(UserError, match=r"image_size=64 was given, but .* crops of 96 pixels"):
        LinearClassifier.load(file, network=network, image_size=64)


def test_a_missing_or_foreign_file_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the classifier .* does not exist; train one"):
        LinearClassifier.load(tmp_path / "c.safetensors", network="a")
    save_file({"weight": torch.zeros(2, 2)}, tmp_path / "c.safetensors")
    with pytest.raises(UserError, match="is not a linear classifier"):
        LinearClassifier.load(tmp_path / "c.safetensors", network="a")


@pytest.mark.parametrize("damage", ["empty", "short", "garbage", "one bit"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "c.safetensors"
    classifier().save(file)
    data = file.read_bytes()
    flipped = bytes([*data[:-1], data[-1] ^ 1])
    file.write_bytes(
        {"empty": b"", "short": data[:-3], "garbage": b"x" * 99, "one bit": flipped}[damage]
    )
    with pytest.raises(UserError, match="is damaged; delete it"):
        LinearClassifier.load(file, network="abcdef0123456789")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UserError, match=r"cannot write the classifier .*--cache"):
        classifier().save(tmp_path / "taken" / "c.safetensors")


def test_logits_are_those_of_a_linear_layer() -> None:
    trained, tested = classifier(), features(5)
    layer = torch.nn.Linear(4, 3)
    layer.load_state_dict({"weight": trained.weight, "bias": trained.bias})
    torch.testing.assert_close(trained.logits(tested.vectors), layer(tested.vectors))


def test_no_more_blocks_are_read_than_there_are_and_that_is_said() -> None:
    backbone = tiny_backbone()
    assert Embedding(blocks=2).fitting(backbone) == (Embedding(blocks=2), ())
    fewer, notes = Embedding(blocks=4, token="gap").fitting(backbone)
    assert fewer == Embedding(blocks=2, token="gap")
    assert "2 instead of 4 blocks, because the network has only 2" in notes[0]


def test_a_classifier_of_an_earlier_version_opens(tmp_path: Path) -> None:
    ours = classifier()
    ours.save(tmp_path / "new.safetensors")
    with safe_open(tmp_path / "new.safetensors", framework="pt") as opened:
        told = opened.metadata()
    told["reading"] = told.pop("readout")
    save_file(load_file(tmp_path / "new.safetensors"), tmp_path / "old.safetensors", told)
    old = LinearClassifier.load(tmp_path / "old.safetensors", network=ours.network)
    assert (old.readout, old.digest) == (ours.readout, ours.digest)


def test_the_probabilities_of_one_class_per_image_add_up_to_one() -> None:
    trained, tested = classifier(), features(5)
    found = trained.probabilities(tested.vectors)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(5))
    torch.testing.assert_close(found.log().diff(), trained.logits(tested.vectors).diff())


def test_the_probabilities_of_several_classes_per_image_are_independent() -> None:
    trained, tested = replace(classifier(), multi_label=True), features(5)
    alone = replace(trained, weight=trained.weight[1:2], bias=trained.bias[1:2], classes=("1",))
    found = trained.probabilities(tested.vectors)
    torch.testing.assert_close(found[:, 1:2], alone.probabilities(tested.vectors))
    torch.testing.assert_close(found, 1 / (1 + (-trained.logits(tested.vectors)).exp()))


def test_whether_a_classifier_is_multi_label_is_kept_and_told(tmp_path: Path) -> None:
    for is_multi_label in (False, True):
        before = replace(classifier(), multi_label=is_multi_label)
        before.save(tmp_path / "c.safetensors")
        after = LinearClassifier.load(tmp_path / "c.safetensors", network=before.network)
        assert after.multi_label == is_multi_label
        assert ("multi-label" in after.describe()) == is_multi_label
