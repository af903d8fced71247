"""From images to frozen features: centre crops, read in order, through the backbone."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from attmask.data.config import DataConfig
from attmask.data.decode import UnreadableImageError, decode
from attmask.data.source import Source
from attmask.data.subset import spread_evenly
from attmask.data.workers import Feed, start_worker, to_shared_memory
from attmask.errors import UserError
from attmask.models.backbone import Backbone

log = logging.getLogger(__name__)

Autocast = Callable[[], AbstractContextManager[object]]
Count = Callable[[int], None]
"""Is told after each batch how many images it had; may raise to stop the reading."""

RESIZE_TO_CROP = 256 / 224  # the evaluation protocol of ImageNet: resize to 256, keep 224
_LONGEST = 16  # times the shorter side: what is beyond would be resized only to be cut off


@dataclass(frozen=True)
class Features:
    """One vector an image, in the order of the source, with the labels where there are any.

    `rows` says which images of the source these are, where some could not be read.
    """

    vectors: Float[Tensor, "M D"]
    labels: Int[Tensor, "M"] | None
    rows: Int[Tensor, "M"] | None = None


def center_crop(
    image: Image.Image, size: int, resampling: Image.Resampling = Image.Resampling.BICUBIC
) -> Image.Image:
    """The middle of the image after its shorter side was resized to 256/224 of the crop."""
    shorter = round(size * RESIZE_TO_CROP)
    least = min(image.size)
    if max(image.size) > _LONGEST * least:  # 20,000 x 2 pixels would become 2.6 million x 256
        kept_wh = [min(side, _LONGEST * least) for side in image.size]
        left, top = ((side - kept) // 2 for side, kept in zip(image.size, kept_wh, strict=True))
        image = image.crop((left, top, left + kept_wh[0], top + kept_wh[1]))
    width, height = (shorter * side // least for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    resized = image.resize((width, height), resampling)
    return resized.crop((left, top, left + size, top + size))


def as_tensor(image: Image.Image) -> UInt8[Tensor, "C H W"]:
    """The pixels of an image, channels first."""
    pixels = np.array(image, dtype=np.uint8)
    return torch.from_numpy(pixels.reshape(image.height, image.width, -1)).permute(2, 0, 1)


def crop_pixels(pixels: UInt8[np.ndarray, "H W C"], size: int) -> UInt8[Tensor, "C size size"]:
    """The centre crop of an image of any number of channels, channels first."""
    planes = (Image.fromarray(np.ascontiguousarray(plane)) for plane in pixels.transpose(2, 0, 1))
    return torch.cat([as_tensor(center_crop(plane, size)) for plane in planes])


def read_crop(
    source: Source, image_size: int, data: DataConfig, index: int
) -> tuple[UInt8[Tensor, "C H W"]]:
    """The 8-bit centre crop of one image of a source."""
    return (crop_pixels(decode(source, index, data), image_size),)


def normalise(
    crops: UInt8[Tensor, "B C H W"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "B C H W"]:
    """8-bit pixels as the backbone wants them: in 0..1, less the mean, over the deviation."""
    channels = crops.shape[1]
    if len(mean) not in (1, channels) or len(std) not in (1, channels):
        raise UserError(
            f"{len(mean)} means and {len(std)} deviations for images of {channels} channels; "
            "give one for each channel, or one for all"
        )
    centre = torch.tensor(mean, device=crops.device).view(1, -1, 1, 1)
    spread = torch.tensor(std, device=crops.device).view(1, -1, 1, 1)
    return (crops.float() / 255 - centre) / spread


class _InOrder(Dataset[tuple[Tensor, ...] | UserError]):
    """What `read` makes of each index; an unreadable image is returned as its error, because a
    worker process that raises would bury the one clear line in its own traceback."""

    def __init__(self, read: Callable[[int], tuple[Tensor, ...]], indices: Sequence[int]) -> None:
        self.read, self.indices = read, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> tuple[Tensor, ...] | UserError:
        try:
            return self.read(self.indices[position])
        except UserError as error:
            return error


def _stack(items: list[tuple[Tensor, ...] | UserError]) -> tuple[Tensor, ...] | UserError:
    read: list[tuple[Tensor, ...]] = []
    for item in items:
        if isinstance(item, UserError):
            return item
        read.append(item)
    batch = tuple(torch.stack(column) for column in zip(*read, strict=True))
    return to_shared_memory(batch) or batch


def read_in_order(
    read: Callable[[int], tuple[Tensor, ...]],
    indices: Sequence[int],
    *,
    batch_size: int,
    workers: int = 0,
) -> Iterator[tuple[Tensor, ...]]:
    """Batches of what `read` makes of each index, in order, with any number of processes."""
    loader = DataLoader(
        _InOrder(read, indices),
        batch_size=batch_size,
        num_workers=workers,
        collate_fn=_stack,
        worker_init_fn=start_worker,
        # Its own generator: an evaluation must not move the random state of the training.
        generator=torch.Generator(),
    )
    feed = Feed(loader, workers="workers")
    try:
        feed.restart()
        while True:
            try:
                batch = feed.take()
            except StopIteration:
                return
            if isinstance(batch, UserError):
                raise batch
            yield batch
    finally:
        feed.close()


def uncounted(_: int) -> None:
    """Take no notice of how many images were read; the default where progress may be counted."""


class CachedCrops:
    """The centre crops of a source kept in memory as 8-bit pixels, read once, used many times.

    Files that cannot be read are left out, as training passes over them.
    """

    def __init__(
        self,
        source: Source,
        image_size: int,
        data: DataConfig,
        *,
        max_images: int | None = None,
        workers: int = 0,
        count: Count = uncounted,
    ) -> None:
        self.indices = spread_evenly(source.labels, len(source), max_images)
        if not self.indices:
            raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")
        read = partial(_read_or_blank, source, image_size, data)
        batches = read_in_order(read, self.indices, batch_size=256, workers=workers)
        shape = (len(self.indices), data.channels, image_size, image_size)
        self.images: UInt8[Tensor, "M C H W"] = torch.empty(shape, dtype=torch.uint8)
        is_readable = torch.empty(len(self.indices), dtype=torch.bool)
        done = 0
        for crops, readable in batches:  # in place: a list to be joined would double the memory
            here = slice(done, done + len(crops))
            self.images[here], is_readable[here] = crops, readable
            done += len(crops)
            count(len(crops))
        if not is_readable.all():
            self.images = self.images[is_readable]
        self.indices = self._without_unreadable(source, is_readable.tolist())
        self.labels = _labels(source, self.indices)
        self.classes = source.classes

    def __len__(self) -> int:
        return len(self.indices)

    def _without_unreadable(self, source: Source, readable: Sequence[bool]) -> list[int]:
        unread = [i for i, good in zip(self.indices, readable, strict=True) if not good]
        if unread:
            told = f"{len(unread)} of {len(readable)} images of {source.root} cannot be read"
            told = f"{told}, the first is {source.place(unread[0])}"
            if len(unread) == len(readable):
                raise UserError(f"{told}; check that these files are pictures")
            log.warning("%s; they are left out of the evaluation", told)
        return [i for i, good in zip(self.indices, readable, strict=True) if good]


def _read_or_blank(
    source: Source, image_size: int, data: DataConfig, index: int
) -> tuple[UInt8[Tensor, "C H W"], Bool[Tensor, ""]]:
    """A centre crop and that it is one, or black pixels and that it is none."""
    try:
        return *read_crop(source, image_size, data, index), torch.tensor(True)
    except UnreadableImageError:
        blank = torch.zeros(data.channels, image_size, image_size, dtype=torch.uint8)
        return blank, torch.tensor(False)


def _labels(source: Source, indices: Sequence[int]) -> Int[Tensor, "M"] | None:
    if source.labels is None:
        return None
    return torch.tensor([int(source.labels[i]) for i in indices], dtype=torch.int64)


@contextmanager
def frozen(network: nn.Module) -> Iterator[None]:
    """No gradients and evaluation mode inside; each module's own mode again afterwards."""
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        for module in training:
            module.training = True


def _through_backbone(
    backbone: Backbone,
    batches: Iterable[Tensor],
    data: DataConfig,
    autocast: Autocast,
    count: Count = uncounted,
) -> Float[Tensor, "M D"]:
    rows: list[Tensor] = []
    with frozen(backbone):
        for crops in batches:
            images = normalise(crops.to(backbone.device, non_blocking=True), data.mean, data.std)
            with autocast():
                cls = backbone.summary(images).cls
            rows.append(cls.float().cpu())
            count(len(crops))
    # A clone outside inference mode is an ordinary tensor that a probe can be trained on.
    return torch.cat(rows).clone()


def extract(
    backbone: Backbone,
    source: Source,
    *,
    image_size: int,
    data: DataConfig,
    batch_size: int = 64,
    workers: int = 0,
    autocast: Autocast = nullcontext,
) -> Features:
    """`[CLS]` after the final norm of every image of a source, in its order, in fp32 on the CPU."""
    if len(source) == 0:
        raise UserError(f"{source.root} has no images to evaluate on; give a folder with some")
    everything = range(len(source))
    read = partial(read_crop, source, image_size, data)
    batches = read_in_order(read, everything, batch_size=batch_size, workers=workers)
    crops = (batch for (batch,) in batches)
    cls = _through_backbone(backbone, crops, data, autocast)
    return Features(vectors=cls, labels=_labels(source, everything))


def extract_cached(
    backbone: Backbone,
    crops: CachedCrops,
    *,
    data: DataConfig,
    batch_size: int = 64,
    autocast: Autocast = nullcontext,
    count: Count = uncounted,
) -> Features:
    """The same as `extract` for crops that are already in memory."""
    batches = crops.images.split(batch_size)
    cls = _through_backbone(backbone, batches, data, autocast, count)
    return Features(vectors=cls, labels=crops.labels)
