"""Generated images and two random views of each, so that the examples need no download."""

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torchvision.transforms import v2

from attmask.data.synthetic import scene

IMAGE_SIZE = 64
PATCH_SIZE = 8


class Scenes(Dataset[Tensor]):
    """Scenes with one object each, 3 x 64 x 64, with a mean of 0 and a deviation of about 1."""

    def __init__(self, count: int) -> None:
        self.images = [
            torch.from_numpy(scene(index, seed=0, size=IMAGE_SIZE).image).permute(2, 0, 1)
            for index in range(count)
        ]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        return self.images[index].float() / 127.5 - 1


class TwoViews(Dataset[tuple[Tensor, Tensor]]):
    """Two random global crops of each image."""

    def __init__(self, images: Dataset[Tensor], count: int) -> None:
        self.images, self.count = images, count
        self.draw = v2.Compose(
            [
                v2.RandomResizedCrop(IMAGE_SIZE, scale=(0.25, 1.0), antialias=True),
                v2.RandomHorizontalFlip(),
            ]
        )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.images[index]
        return self.draw(image), self.draw(image)
