"""Label propagation as it is published: one affinity matrix of all patches with all, masked.

Written from the description of the protocol (DINO, section 4.2.2 and its public evaluation).
"""

import torch
from torch import Tensor
from torch.nn import functional


def window(height: int, width: int, radius: int) -> Tensor:
    """1 where a patch is inside the window of another, N x N."""
    rows, cols = (torch.arange(side) for side in (height, width))
    down = (rows[:, None] - rows).abs() <= radius
    across = (cols[:, None] - cols).abs() <= radius
    near = down[:, None, :, None] & across[None, :, None, :]
    return near.reshape(height * width, height * width).float()


class PlainTracker:
    """The first frame and a queue of the last ones, with their soft labels."""

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        *,
        context_frames: int = 7,
        radius: int = 12,
        top_k: int = 5,
        temperature: float = 0.1,
    ) -> None:
        _, self.height, self.width = features.shape
        self.near = window(self.height, self.width, radius)
        self.first = (features.flatten(1), labels.flatten(0, 1))
        self.queue: list[tuple[Tensor, Tensor]] = []
        self.context_frames, self.top_k, self.temperature = context_frames, top_k, temperature

    def follow(self, features: Tensor) -> Tensor:
        """The soft labels of the next frame, height x width x classes."""
        used = [self.first, *self.queue]
        sources = functional.normalize(torch.stack([source for source, _ in used]), dim=1)
        target = functional.normalize(features.flatten(1).T, dim=1).expand(len(used), -1, -1)
        affinity = torch.exp(torch.bmm(target, sources) / self.temperature)
        affinity *= self.near
        affinity = affinity.transpose(2, 1).reshape(-1, target.shape[1])
        least = affinity.topk(self.top_k, dim=0).values.amin(dim=0)
        affinity[affinity < least] = 0
        affinity = affinity / affinity.sum(dim=0, keepdim=True)
        labels = affinity.T @ torch.cat([known for _, known in used])
        self.queue = [*self.queue, (features.flatten(1), labels)][-self.context_frames :]
        return labels.view(self.height, self.width, -1)
