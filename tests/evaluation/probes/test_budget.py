import pytest

from attmask.evaluation.probes.budget import LEAST_STEPS, Budget, training_budget
from attmask.evaluation.probes.fit import Fitting
from attmask.evaluation.protocols.linear import Linear
from attmask.evaluation.protocols.linear_cached import LinearCached

IMAGENET, IMAGENET_20, PLACES = 1_281_167, 260_000, 2_448_873


@pytest.mark.parametrize("images", [IMAGENET, IMAGENET_20, PLACES])
def test_a_set_of_imagenets_size_is_trained_as_in_the_paper(images: int) -> None:
    assert Linear().budget(images) == Budget(images, batch_size=1024, epochs=100)
    assert LinearCached().budget(images) == Budget(images, batch_size=1024, epochs=50)
    assert Fitting().fitting().budget(images) == Budget(images, batch_size=1024, epochs=50)


@pytest.mark.parametrize("images", [1, 20, 31, 185, 1_000, 1_480, 2_000, 9_469, 50_000, IMAGENET])
@pytest.mark.parametrize("settings", [Linear(), LinearCached(), Fitting().fitting()])
def test_a_set_of_any_size_gets_enough_steps(settings: LinearCached, images: int) -> None:
    found = settings.budget(images)
    assert found.steps >= LEAST_STEPS
    assert 32 <= found.batch_size <= 1024
    assert found.steps == found.epochs * -(-images // found.batch_size)
    twice = training_budget(
        images, batch_size=2 * found.batch_size, epochs=found.epochs, usual_epochs=1
    )
    is_least = found.batch_size in (32, 1024)
    assert is_least or twice.steps < LEAST_STEPS, "no smaller than need be"


def test_only_very_few_images_are_seen_more_often_than_in_the_paper() -> None:
    assert LinearCached().budget(1_480) == Budget(1_480, batch_size=64, epochs=50)
    assert Linear().budget(1_480) == Budget(1_480, batch_size=128, epochs=100)
    assert LinearCached().budget(185) == Budget(185, batch_size=32, epochs=167)


def test_what_is_asked_for_is_done() -> None:
    asked = LinearCached(batch_size=1024, epochs=50).budget(1_000)
    assert (asked, asked.steps) == (Budget(1_000, 1024, 50), 50)
    assert LinearCached(batch_size=128).budget(1_000) == Budget(1_000, 128, 125)
    assert LinearCached(epochs=200).budget(1_000) == Budget(1_000, 128, 200)


def test_a_card_can_say_it() -> None:
    found = Budget(1_480, batch_size=64, epochs=50)
    assert str(found) == "50 epochs of 1,480 images with a batch size of 64: 1,200 steps"
    assert found.describe() == {"images": 1480, "batch_size": 64, "epochs": 50, "steps": 1200}
