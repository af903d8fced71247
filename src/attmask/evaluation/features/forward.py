"""The forward loop of all evaluations: crops, a frozen network and a readout."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from attmask.data.config import DataConfig
from attmask.errors import UserError
from attmask.evaluation.features.images import Crops
from attmask.evaluation.features.readout import Readout
from attmask.models.backbone import Backbone

Autocast = Callable[[], AbstractContextManager[object]]
Count = Callable[[int], None]
"""A function called with the number of images after each batch; it may raise to stop the loop."""


@dataclass(frozen=True)
class Features:
    """The values of a readout, one row per image, with labels if there are any.

    `rows` are the indices of the images in the source, if some could not be read.
    """

    values: Float[Tensor, "M ..."]
    labels: Int[Tensor, "M"] | None
    rows: Int[Tensor, "M"] | None = None

    @property
    def vectors(self) -> Float[Tensor, "M D"]:
        """The values of an embedding, one vector per image."""
        return self.values


class ReadBatch(NamedTuple):
    """A batch of crops and the values of the readout, in fp32 on the network's device."""

    values: Float[Tensor, "B ..."]
    pixels: UInt8[Tensor, "B C height width"]
    readable: Bool[Tensor, "B"]
    targets: Tensor | None


def forward(
    backbone: Backbone,
    crops: Iterable[Crops],
    readout: Readout,
    data: DataConfig,
    *,
    autocast: Autocast = nullcontext,
) -> Iterator[ReadBatch]:
    """Yield the values of a readout for each batch of crops."""
    for shown in crops:
        # Between two batches, the network is in the caller's mode.
        with frozen(backbone):
            moved = shown.pixels.to(backbone.device, non_blocking=True)
            images = normalise(moved, data.mean, data.std)
            with autocast():
                values = readout(backbone, images)
        yield ReadBatch(values.float(), *shown)


def uncounted(_: int) -> None:
    """Ignore the number of images; the default of `count` arguments."""


def collect(batches: Iterable[ReadBatch]) -> Float[Tensor, "M ..."]:
    """Concatenate the values of the readable images of all batches on the CPU."""
    return torch.cat([batch.values.cpu()[batch.readable] for batch in batches])


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """Disable gradients and use evaluation mode; afterwards restore the mode of each module."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def normalise(
    crops: UInt8[Tensor, "B C H W"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "B C H W"]:
    """Scale 8-bit pixels to 0..1 and normalise them by mean and std."""
    channels = crops.shape[1]
    if len(mean) not in (1, channels) or len(std) not in (1, channels):
        raise UserError(
            f"{len(mean)} means and {len(std)} stds were given for {channels} channels; "
            "give one per channel, or one for all"
        )
    centre = torch.tensor(mean, device=crops.device).view(1, -1, 1, 1)
    scale = torch.tensor(std, device=crops.device).view(1, -1, 1, 1)
    return (crops.float() / 255 - centre) / scale
