"""Semantic segmentation by nearest neighbours of patches; nothing is trained."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxtyping import Float
from torch import Tensor

from attmask import distributed
from attmask.agreement import together
from attmask.errors import UserError
from attmask.evaluation.datasets.masked import MaskedSplit
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.forward import Features
from attmask.evaluation.features.readout import PatchMaps, layer_numbers
from attmask.evaluation.features.squeezed import Squeezed
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.segmentation.labels import class_shares, read_labels, squeezed_labels
from attmask.evaluation.segmentation.measuring import Probed, draw_classes, measures_of, rows_of
from attmask.evaluation.segmentation.neighbours import PatchBank, bank_of, patches_per_image
from attmask.evaluation.task import Measures
from attmask.settings import Config, setting

PREFIX = "segment_knn"
_QUERIES_AT_ONCE = 2048


class SegmentKnn(Config):
    """Each patch of a test image takes the classes of the most similar training patches."""

    k: int = setting(20, "number of nearest patches", ge=1)
    temperature: float = setting(0.07, "temperature of the weights exp(cosine / temperature)", gt=0)
    max_bank_patches: int = setting(
        100_000, "maximum number of training patches, the same number of each image", ge=1
    )
    readout: PatchMaps = setting(PatchMaps(), "patches that are compared")
    image_size: int | None = setting(
        None,
        "side in pixels of the square that images are resized to (null: the network's own)",
        ge=1,
    )

    def check(self, model: FrozenModel, data: MaskedSplit) -> None:
        """Check the images, the size, the layers and the size of the bank."""
        check_images(*data.sources.values())
        check_crop(model, self.image_size)
        layer_numbers(self.readout.layers, model.backbone)
        patches_per_image(len(data.train), self.max_bank_patches)

    def measure(
        self, model: FrozenModel, data: MaskedSplit, extractor: FeatureExtractor
    ) -> Measures:
        """Look up the patches of the test images among those of the training images."""
        crop = Squeezed(self.image_size or model.image_size)
        train = extractor.features(model, data.train.source, crop, self.readout, "train images")
        test = extractor.features(model, data.test.source, crop, self.readout, "test images")
        bank = self._bank(train, data, model, extractor.seed)

        def scores(rows: range) -> Iterator[Float[Tensor, "C h w"]]:
            grid = test.values.shape[3:]
            at_once = max(1, _QUERIES_AT_ONCE // grid.numel())
            for first in range(rows.start, rows.stop, at_once):
                some = test.values[first : min(first + at_once, rows.stop)]
                votes = bank.votes(
                    _vectors(some).flatten(0, 1),
                    k=self.k,
                    temperature=self.temperature,
                    device=extractor.device,
                )
                yield from votes.view(len(some), *grid, -1).permute(0, 3, 1, 2)

        return measures_of(
            PREFIX,
            self,
            model,
            data,
            test,
            Probed(scores, self._notes(bank), {"bank": len(bank)}),
            extractor,
        )

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Plot the IoU of each class."""
        draw_classes(cards, file, title="Segmentation by nearest neighbours of patches")

    def _bank(self, train: Features, data: MaskedSplit, model: FrozenModel, seed: int) -> PatchBank:
        """The patches of the training images, of which each process labels its share."""
        size, patch = self.image_size or model.image_size, model.backbone.patch_size
        rows, classes = rows_of(train), len(data.classes)
        most = patches_per_image(len(rows), self.max_bank_patches)
        share = distributed.share_of(len(rows))
        parts: list[PatchBank] = []
        with counting("labelling patches of train images", len(share)) as count, together():
            for row in share:
                labels = squeezed_labels(read_labels(data.train, rows[row], model.data), size)
                shares = class_shares(labels, patch, classes)
                vectors = _vectors(train.values[row : row + 1])[0]
                parts.append(bank_of(vectors, shares, most=most, image=rows[row], seed=seed))
                count(1)
        width = train.values.shape[1] * train.values.shape[2]
        own = PatchBank.joined(parts, width, classes)
        bank = PatchBank(distributed.gather_rows(own.vectors), distributed.gather_rows(own.shares))
        if not len(bank):
            raise UserError(
                f"no pixel of the training images in {data.train.source.root} has a class; check "
                "the setting ignored"
            )
        return bank

    def _notes(self, bank: PatchBank) -> tuple[str, ...]:
        if self.k <= len(bank):
            return ()
        return (f"k = {self.k} is more than the {len(bank)} training patches, so all of them vote",)


def _vectors(maps: Float[Tensor, "B L D h w"]) -> Float[Tensor, "B N W"]:
    """The features of each patch; those of several blocks are concatenated."""
    return maps.flatten(1, 2).flatten(2).transpose(1, 2).contiguous()
