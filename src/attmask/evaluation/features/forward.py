"""Crops through a frozen network: the one loop that every evaluation reads features with."""

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
"""Is told after each batch how many images it had; may raise to stop the reading."""


@dataclass(frozen=True)
class Features:
    """The values of a readout, one row an image, with the labels where there are any.

    `rows` says which images of the source these are, where some could not be read.
    """

    values: Float[Tensor, "M ..."]
    labels: Int[Tensor, "M"] | None
    rows: Int[Tensor, "M"] | None = None

    @property
    def vectors(self) -> Float[Tensor, "M D"]:
        """The values of an embedding."""
        return self.values


class ReadBatch(NamedTuple):
    """Crops and the values that were read of them, in fp32 on the network's device."""

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
    """Read a frozen network batch after batch."""
    for shown in crops:
        # The caller's own mode between two batches.
        with frozen(backbone):
            moved = shown.pixels.to(backbone.device, non_blocking=True)
            images = normalise(moved, data.mean, data.std)
            with autocast():
                values = readout(backbone, images)
        yield ReadBatch(values.float(), *shown)


def uncounted(_: int) -> None:
    """Take no notice of how many images were read; the default where progress may be counted."""


def collect(batches: Iterable[ReadBatch], count: Count = uncounted) -> Float[Tensor, "M ..."]:
    """The values of all batches on the CPU."""
    rows: list[Tensor] = []
    for batch in batches:
        rows.append(batch.values.cpu())
        count(len(batch.values))
    return torch.cat(rows)


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """No gradients and evaluation mode inside; each module's own mode again afterwards."""
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
    """8-bit pixels as the backbone wants them: in 0..1, less the mean, over the std."""
    channels = crops.shape[1]
    if len(mean) not in (1, channels) or len(std) not in (1, channels):
        raise UserError(
            f"{len(mean)} means and {len(std)} stds for images of {channels} channels; "
            "give one for each channel, or one for all"
        )
    centre = torch.tensor(mean, device=crops.device).view(1, -1, 1, 1)
    scale = torch.tensor(std, device=crops.device).view(1, -1, 1, 1)
    return (crops.float() / 255 - centre) / scale
