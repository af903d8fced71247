"""What is read of a network for the images of a sheet: crops, attention of heads, patch tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float, UInt8
from torch import Tensor

from attmask.data.source import Source
from attmask.errors import UserError
from attmask.evaluation.features.crops import Crop
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.images import say_unreadable
from attmask.evaluation.features.readout import AttentionMaps, PatchMaps, Readout, layer_numbers
from attmask.evaluation.model import FrozenModel
from attmask.mask import Grid
from attmask.visualization.cells import Pixels, photo


@dataclass(frozen=True, eq=False)
class Seen:
    """One image as a network sees it."""

    index: int
    """Its number in the source."""
    name: str
    crop: UInt8[Tensor, "C height width"]
    heads: Float[Tensor, "H N"]
    patches: Float[Tensor, "N D"]
    grid: Grid

    @property
    def attention(self) -> Float[Tensor, " N"]:
        """The mean over the heads, which masking uses."""
        return self.heads.mean(dim=0)

    def on_grid(self, values: Tensor) -> Tensor:
        """Values of patches in rows and columns."""
        return values.view(*self.grid, *values.shape[1:])

    @property
    def photo(self) -> Pixels:
        """The crop in the size of a cell."""
        return photo(self.crop, self.grid)


@dataclass(frozen=True, eq=False)
class Network:
    """A network with what it is shown, and the images as it sees them."""

    name: str
    model: FrozenModel
    crop: Crop
    extractor: FeatureExtractor
    layer: int | None = None
    seen: list[Seen] = field(default_factory=list)

    @property
    def attention_block(self) -> int:
        """The block whose attention is shown, counted from 1."""
        backbone = self.model.backbone
        return (
            backbone.layer + 1 if self.layer is None else layer_numbers((self.layer,), backbone)[0]
        )

    @property
    def patch_block(self) -> int:
        """The block whose patch tokens are shown, counted from 1."""
        layer = -1 if self.layer is None else self.layer
        return layer_numbers((layer,), self.model.backbone)[0]


def look(network: Network, source: Source, indices: Sequence[int]) -> None:
    """Read the images; those that cannot be read are left out with a warning."""
    maps = AttentionMaps(layer=network.attention_block, heads="each")
    patches = _values(network, source, indices, PatchMaps(layers=(network.patch_block,)))
    unread: list[int] = []
    for index, (crop, heads), (_, tokens) in zip(
        indices, _values(network, source, indices, maps), patches, strict=True
    ):
        if crop is None:
            unread.append(index)
            continue
        rows, cols = heads.shape[1:]
        network.seen.append(
            Seen(
                index, source.name(index), crop, heads.flatten(1),
                tokens[0].flatten(1).T.contiguous(), (rows, cols),
            )
        )  # fmt: skip
    if unread:
        say_unreadable(source, unread, asked=len(indices), doing="pictures")


def _values(
    network: Network, source: Source, indices: Sequence[int], readout: Readout
) -> Iterator[tuple[Tensor | None, Tensor]]:
    """The crop (None if unreadable) and the values of each image."""
    stream = network.extractor.stream(network.model, source, network.crop, readout, indices=indices)
    for batch in stream:
        values = batch.values.cpu()
        if not values.isfinite().all():
            raise UserError(
                f"the features of {network.name} are not finite; its training diverged, so use an "
                "earlier checkpoint"
            )
        for place, readable in enumerate(batch.readable.tolist()):
            yield batch.pixels[place].cpu() if readable else None, values[place]
