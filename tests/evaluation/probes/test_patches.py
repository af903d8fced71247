from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attmask.errors import UserError
from attmask.evaluation.features.forward import uncounted
from attmask.evaluation.probes.patches import PatchClassifier, PatchProbe, train_patches
from tests.groups import in_group

CPU = torch.device("cpu")
CLASSES = 3


def example(images: int = 6) -> tuple[Tensor, Tensor]:
    """Maps of two blocks with their channels far from the origin, and labels that follow them."""
    draw = torch.Generator().manual_seed(0)
    cells = torch.randint(CLASSES, (images, 4, 4), generator=draw)
    maps = torch.randn(images, 2, 5, 4, 4, generator=draw)
    maps[:, 1, :CLASSES] += 4 * functional.one_hot(cells, CLASSES).permute(0, 3, 1, 2)
    labels = cells.repeat_interleave(3, 1).repeat_interleave(3, 2).short()
    labels[:, 0] = -1
    return 7 + 30 * maps, labels


def trained(config: PatchProbe, seed: int = 0) -> PatchClassifier:
    maps, labels = example()
    return train_patches(
        maps, lambda i: labels[i], CLASSES, config, seed=seed, device=CPU, count=uncounted
    )


def test_it_learns_classes_that_are_linear_in_the_features() -> None:
    maps, labels = example()
    found = trained(PatchProbe(steps=60, batch_size=2, rate=0.05))
    scores = found.scores(maps.flatten(1, 2))
    cells = labels[:, 1::3, 1::3].long()
    assert (scores.argmax(dim=1) == cells).float().mean() > 0.95


def test_one_step_is_that_of_adamw_on_standardised_features() -> None:
    maps, labels = example()
    rate = 0.01
    flat = maps.flatten(1, 2)
    mean = flat.mean(dim=(0, 2, 3), keepdim=True)
    shown = (flat - mean) / flat.var(dim=(0, 2, 3), keepdim=True, correction=0).sqrt()
    weight = torch.zeros(CLASSES, flat.shape[1], 1, 1, requires_grad=True)
    bias = torch.zeros(CLASSES, requires_grad=True)
    logits = functional.interpolate(
        functional.conv2d(shown, weight, bias), (12, 12), mode="bilinear"
    )
    functional.cross_entropy(logits, labels.long(), ignore_index=-1).backward()
    torch.optim.AdamW([weight, bias], lr=rate).step()
    found = trained(PatchProbe(steps=1, batch_size=6, rate=rate)).scores(flat)
    wanted = functional.conv2d(shown, weight, bias)
    assert torch.allclose(found, wanted, atol=1e-4)


def test_the_order_of_the_images_follows_the_seed() -> None:
    config = PatchProbe(steps=3, batch_size=2)
    first, again, other = trained(config), trained(config), trained(config, seed=1)
    assert torch.equal(first.weight, again.weight)
    assert not torch.equal(first.weight, other.weight)


def test_several_processes_train_the_classifier_of_one(tmp_path: Path) -> None:
    config = PatchProbe(steps=8, batch_size=3, rate=0.02)
    alone = trained(config)
    for one in in_group(2, tmp_path, lambda _: trained(config).weight):
        assert torch.allclose(one, alone.weight, rtol=1e-3, atol=1e-5)


def test_a_channel_that_never_changes_does_no_harm() -> None:
    maps, labels = example()
    maps[:, 0, 0] = 3.0
    config = PatchProbe(steps=5, batch_size=2)
    found = train_patches(
        maps, lambda i: labels[i], CLASSES, config, seed=0, device=CPU, count=uncounted
    )
    assert bool(found.scores(maps.flatten(1, 2)).isfinite().all())


def test_batches_without_a_labelled_pixel_change_nothing() -> None:
    maps, labels = example()
    nothing = torch.full_like(labels, -1)
    config = PatchProbe(steps=3, batch_size=2)
    found = train_patches(
        maps, lambda i: nothing[i], CLASSES, config, seed=0, device=CPU, count=uncounted
    )
    assert not found.weight.any()


def test_an_error_of_the_labels_is_passed_on() -> None:
    def broken(image: int) -> Tensor:
        raise UserError(f"the mask of image {image} is broken; make it again")

    with pytest.raises(UserError, match="is broken; make it again"):
        train_patches(
            example()[0], broken, CLASSES, PatchProbe(), seed=0, device=CPU, count=uncounted
        )
