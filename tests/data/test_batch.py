"""One batch: what is in it, how it is decoded, and its statistics against torchvision's."""

import io
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torchvision import transforms

from attmask.data.batch import Batch, BatchMaker, Request
from attmask.data.config import DataConfig
from attmask.data.source import Source, everything
from attmask.data.stores.arrays import Arrays
from attmask.data.stores.files import Files
from attmask.data.views import ViewsConfig
from tests.photographs import photograph

NOTES = torch.full((1, 2), -1)


def make(
    source: Source, config: ViewsConfig, samples: tuple[int, ...], *, channels: int = 3
) -> Batch:
    made = BatchMaker(source, DataConfig(channels=channels), config, 0, NOTES)[Request(0, samples)]
    assert isinstance(made, Batch)
    return made


@pytest.fixture
def source(tmp_path: Path) -> Source:
    photograph(120, 90).save(tmp_path / "one.png")
    return everything(tmp_path, Files(tmp_path, ["one.png"] * 400))


class Blur:
    """A blur of random width with a probability, on a Pillow image."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    def __call__(self, image: Image.Image) -> Image.Image:
        if torch.rand(()) >= self.probability:
            return image
        return image.filter(ImageFilter.GaussianBlur(float(torch.empty(()).uniform_(0.1, 2.0))))


def statistics(views: Tensor) -> dict[str, Tensor]:
    """What the eye would notice, one number an image."""
    values = views.float()
    return {
        "brightness": values.mean(dim=(1, 2, 3)),
        "contrast": values.std(dim=(1, 2, 3)),
        "colour": (values[:, 0] - values[:, 2]).abs().mean(dim=(1, 2)),
        "detail": values.diff(dim=3).abs().mean(dim=(1, 2, 3)),
    }


def test_views_over_many_draws_have_the_statistics_of_torchvision(source: Source) -> None:
    torch.manual_seed(0)
    config = ViewsConfig(global_size=32, local_size=16, local_crops=1)
    views = make(source, config, tuple(range(400))).views
    ours = [views.globals[0], views.globals[1], views.locals[0]]
    picture = photograph(120, 90)
    bicubic = transforms.InterpolationMode.BICUBIC
    jitter = transforms.ColorJitter(0.4, 0.4, 0.2, 0.1)
    for number, (size, scale, blur, solarise) in enumerate(
        ((32, (0.25, 1.0), 1.0, 0.0), (32, (0.25, 1.0), 0.1, 0.2), (16, (0.05, 0.25), 0.5, 0.0))
    ):
        usual = transforms.Compose(
            [
                transforms.RandomResizedCrop(size, scale, interpolation=bicubic),
                transforms.RandomHorizontalFlip(),
                transforms.RandomApply([jitter], p=0.8),
                transforms.RandomGrayscale(0.2),
                Blur(blur),
                transforms.RandomSolarize(128, p=solarise),
                transforms.PILToTensor(),
            ]
        )
        theirs = torch.stack([usual(picture) for _ in range(400)])
        for name, a in statistics(ours[number]).items():
            b = statistics(theirs)[name]
            error = math.sqrt(float(a.var() + b.var()) / 400)
            assert abs(float(a.mean() - b.mean())) < 4 * error, (number, name)
            assert float(a.std() / b.std()) == pytest.approx(1, abs=0.25), (number, name)


def test_a_large_jpeg_is_decoded_no_larger_than_its_crops_need(tmp_path: Path) -> None:
    file = io.BytesIO()
    photograph(1600, 1200).save(file, "JPEG", quality=95)
    (tmp_path / "large.jpg").write_bytes(file.getvalue())
    large = everything(tmp_path, Files(tmp_path, ["large.jpg"]))
    photograph(1600, 1200).save(tmp_path / "large.png")
    whole = everything(tmp_path, Files(tmp_path, ["large.png"]))
    config = ViewsConfig(
        global_size=32, local_size=16, local_crops=2, jitter_probability=0, grey_probability=0
    )
    shrunk, full = make(large, config, (0,)).views, make(whole, config, (0,)).views
    for ours, theirs in ((shrunk.globals, full.globals), (shrunk.locals, full.locals)):
        assert (ours.float() - theirs.float()).abs().mean() < 4


@pytest.mark.parametrize("channels", [1, 2, 4, 6])
def test_pictures_of_any_number_of_channels_become_views(channels: int) -> None:
    chance = np.random.default_rng(0)
    images = chance.integers(0, 256, (3, 40, 50, channels), dtype=np.uint8)
    config = ViewsConfig(global_size=16, local_size=8, local_crops=1)
    source = everything(Path(), Arrays("x.npy", images, channels_first=False))
    batch = make(source, config, (2, 0), channels=channels)
    assert batch.views.globals.shape == (2, 2, channels, 16, 16)
    assert batch.views.locals.shape == (1, 2, channels, 8, 8)
    assert batch.samples.tolist() == [2, 0]
    assert batch.views.globals.is_contiguous()
