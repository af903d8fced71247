import pytest

from attmask.errors import UserError
from attmask.evaluation.datasets.labelled import Split
from attmask.evaluation.encoding import Reading
from attmask.evaluation.needs import check_crop, check_images
from attmask.evaluation.subject import Subject


def test_crops_of_whole_patches_and_blocks_that_are_there_are_fine(subject: Subject) -> None:
    check_crop(subject, None, Reading(blocks=2))
    check_crop(subject, 40)


def test_what_the_network_cannot_be_shown_or_read_is_one_line(subject: Subject) -> None:
    with pytest.raises(UserError, match="image size 33 is not a multiple of patch size 8"):
        check_crop(subject, 33)
    with pytest.raises(UserError, match="the last 3 blocks were asked for, the network has 2"):
        check_crop(subject, 32, Reading(blocks=3))


def test_a_source_without_images_is_one_line(split: Split) -> None:
    check_images(split.train, split.test)
    with pytest.raises(UserError, match="has no images to evaluate on"):
        check_images(split.train, split.test.subset([]))
