from dataclasses import replace
from pathlib import Path

import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.features.readout import Embedding
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.requirements import check_crop, check_images, classifier_of
from tests.evaluation.models import with_classifier


def test_crops_of_whole_patches_and_blocks_that_are_there_are_fine(model: FrozenModel) -> None:
    check_crop(model, None, Embedding(blocks=2))
    check_crop(model, 40)


def test_what_the_network_cannot_be_shown_or_read_is_one_line(model: FrozenModel) -> None:
    with pytest.raises(UserError, match="image size 33 is not a multiple of patch size 8"):
        check_crop(model, 33)
    with pytest.raises(UserError, match="blocks=3 is more than the network has, 2"):
        check_crop(model, 32, Embedding(blocks=3))


def test_a_source_without_images_is_one_line(split: Split) -> None:
    check_images(split.train, split.test)
    with pytest.raises(UserError, match="has no images to evaluate on"):
        check_images(split.train, split.test.subset([]))


def test_the_classifier_is_that_of_the_file_or_else_the_networks_own(
    model: FrozenModel, tmp_path: Path
) -> None:
    tuned = with_classifier(model, ("a", "b"))
    assert classifier_of(tuned) is tuned.classifier
    other = with_classifier(model, ("c", "d")).classifier
    assert other is not None
    other.save(tmp_path / "c.safetensors")
    assert classifier_of(tuned, tmp_path / "c.safetensors").classes == ("c", "d")
    assert classifier_of(model, tmp_path / "c.safetensors").classes == ("c", "d")
    with pytest.raises(UserError, match="tiny has no classifier; train one with `attmask finetun"):
        classifier_of(model)
    large = replace(other, image_size=33)
    with pytest.raises(UserError, match="image size 33 is not a multiple of patch size 8"):
        classifier_of(replace(model, classifier=large))
