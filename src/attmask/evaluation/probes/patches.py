"""A linear classifier of patches, trained on the labels of their pixels.

It has one weight per class and channel, that of a 1 x 1 convolution. Its logits are resized to the
pixels (bilinear), where the cross entropy is taken. Channels are standardised by the mean and std
of the training patches, which are folded into the weights after training.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor, nn
from torch.nn import functional

from attmask import distributed
from attmask.agreement import together
from attmask.errors import UserError
from attmask.evaluation.features.forward import Count
from attmask.evaluation.probes.training import order, share_of
from attmask.schedules import Cosine
from attmask.settings import Config, setting

_IMAGES_AT_ONCE = 16

Labels = Callable[[int], Int16[Tensor, "height width"]]
"""The label of each pixel of an image, below 0 where there is none."""


class PatchProbe(Config):
    """How a linear classifier of patches is trained."""

    steps: int = setting(500, "number of training steps", ge=1)
    batch_size: int = setting(16, "images per step over all processes", ge=1)
    rate: float = setting(1e-3, "peak learning rate of AdamW; a half cosine to zero", gt=0)
    weight_decay: float = setting(1e-3, "weight decay of AdamW", ge=0)


@dataclass(frozen=True, eq=False)
class PatchClassifier:
    """The weights of a trained classifier, for features as they are."""

    weight: Float[Tensor, "C W"]
    bias: Float[Tensor, " C"]

    def scores(self, maps: Float[Tensor, "B W h w"]) -> Float[Tensor, "B C h w"]:
        """The logits of each patch."""
        weight = self.weight[:, :, None, None]
        return functional.conv2d(maps.to(self.weight.device), weight, self.bias)


def train_patches(
    maps: Float[Tensor, "M L D h w"],
    labels: Labels,
    classes: int,
    config: PatchProbe,
    *,
    seed: int,
    device: torch.device,
    count: Count,
) -> PatchClassifier:
    """Train on the maps of images; `count` is called with the images of each step.

    Each of several processes takes its share of every batch, and all have the same weights.
    """
    mean, std = (each.to(device) for each in _statistics(maps))
    weight = nn.Parameter(torch.zeros(classes, len(mean), 1, 1, device=device))
    bias = nn.Parameter(torch.zeros(classes, device=device))
    optimizer = torch.optim.AdamW(
        [
            {"params": [weight], "weight_decay": config.weight_decay},
            {"params": [bias], "weight_decay": 0.0},
        ],
        lr=config.rate,
    )
    rate = Cosine(config.rate, 0.0, config.steps)
    for step, batch in enumerate(_batches(len(maps), config, seed)):
        own = share_of(batch).tolist()
        with together():
            truth = [labels(image).long() for image in own]
        loss, pixels = torch.zeros((), device=device), torch.zeros((), device=device)
        if own:
            shown = (maps[own].flatten(1, 2).to(device) - mean[:, None, None]) / std[:, None, None]
            logits = functional.conv2d(shown, weight, bias)
            loss, pixels = _summed_loss(logits, torch.stack(truth).to(device))
        mean_pixels = distributed.average_(pixels.clone())  # gradients are averaged too
        optimizer.zero_grad()
        (loss / mean_pixels.clamp_min(1) + 0 * (weight.sum() + bias.sum())).backward()
        for parameter in (weight, bias):
            assert parameter.grad is not None
            distributed.average_(parameter.grad)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        count(len(batch))
    folded = weight.detach()[:, :, 0, 0] / std
    return PatchClassifier(folded, bias.detach() - folded @ mean)


def _summed_loss(
    logits: Float[Tensor, "B C h w"], labels: Int[Tensor, "B height width"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The cross entropy of all labelled pixels, and their number."""
    height, width = labels.shape[-2:]
    resized = functional.interpolate(logits, (height, width), mode="bilinear", align_corners=False)
    is_labelled = labels >= 0
    loss = functional.cross_entropy(
        resized, labels.where(is_labelled, -100), ignore_index=-100, reduction="sum"
    )
    return loss, is_labelled.sum().to(logits.dtype)


def _batches(images: int, config: PatchProbe, seed: int) -> Iterator[Int[Tensor, "_"]]:
    """Batches of whole epochs, each in a new order, until all steps are done."""
    step = epoch = 0
    while True:
        for batch in order(images, batch_size=config.batch_size, seed=seed, epoch=epoch):
            if step == config.steps:
                return
            yield batch
            step += 1
        epoch += 1


def _statistics(
    maps: Float[Tensor, "M L D h w"],
) -> tuple[Float[Tensor, " W"], Float[Tensor, " W"]]:
    """Mean and std of each channel over all patches, some images at a time."""
    total = squares = torch.zeros(maps.shape[1] * maps.shape[2], dtype=torch.float64)
    for some in maps.split(_IMAGES_AT_ONCE):
        flat = some.flatten(1, 2).flatten(2).double()
        total = total + flat.sum(dim=(0, 2))
        squares = squares + flat.square().sum(dim=(0, 2))
    patches = len(maps) * maps.shape[3] * maps.shape[4]
    mean = total / patches
    std = (squares / patches - mean.square()).clamp_min(0).sqrt()
    if not bool(std.isfinite().all()):
        raise UserError(
            "the features of the patches overflow; evaluate an earlier checkpoint, whose training "
            "has not diverged"
        )
    return mean.float(), std.clamp_min(1e-6).float()
