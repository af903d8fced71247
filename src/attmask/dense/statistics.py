"""The running statistics of batch norms: not those of skipped steps, the same in all processes."""

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from attmask import distributed


class Statistics:
    """A copy of the running statistics of a network."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._before = [buffer.clone() for buffer in network.buffers()]

    def restore_(self) -> None:
        """Set the statistics of the network to the copy."""
        for buffer, before in zip(self._network.buffers(), self._before, strict=True):
            buffer.copy_(before)

    def keep_if_(self, finite: Bool[Tensor, ""]) -> None:
        """Set them to the copy unless a step was finite; nothing waits for the device."""
        for buffer, before in zip(self._network.buffers(), self._before, strict=True):
            buffer.copy_(torch.where(finite, buffer, before))


def share_statistics_(network: nn.Module) -> None:
    """Give all processes the statistics of the main one, which are those that are saved."""
    if distributed.world_size() == 1:
        return
    values = distributed.from_main([buffer.cpu() for buffer in network.buffers()])
    for buffer, value in zip(network.buffers(), values, strict=True):
        buffer.copy_(value)
