"""A linear classifier of patches for semantic segmentation, on a frozen network."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from jaxtyping import Float, Int16
from torch import Tensor

from attmask.evaluation.datasets.masked import MaskedSplit
from attmask.evaluation.features.extractor import FeatureExtractor
from attmask.evaluation.features.readout import PatchMaps, layer_numbers
from attmask.evaluation.features.squeezed import Squeezed
from attmask.evaluation.model import FrozenModel
from attmask.evaluation.probes.patches import PatchProbe, train_patches
from attmask.evaluation.reporting.card import Card
from attmask.evaluation.reporting.progress import counting
from attmask.evaluation.requirements import check_crop, check_images
from attmask.evaluation.segmentation.labels import read_labels, squeezed_labels
from attmask.evaluation.segmentation.measuring import Probed, draw_classes, measures_of, rows_of
from attmask.evaluation.task import Measures
from attmask.models.pyramid import pyramid_layers
from attmask.settings import setting

PREFIX = "segment_linear"


class SegmentLinear(PatchProbe):
    """A linear classifier on the patches of four blocks predicts the class of each pixel."""

    layers: tuple[int, ...] | None = setting(
        None,
        "blocks whose patches are concatenated, counted from 1 (null: after a third, a half, two "
        "thirds and all of them, as UperNet reads: 4, 6, 8, 12 of 12)",
        min_length=1,
    )
    norm: bool = setting(True, "apply the final norm to the patches of every block")
    image_size: int | None = setting(
        None,
        "side in pixels of the square that images are resized to (null: the network's own)",
        ge=1,
    )

    def check(self, model: FrozenModel, data: MaskedSplit) -> None:
        """Check the images, the size and the layers."""
        check_images(*data.sources.values())
        check_crop(model, self.image_size)
        layer_numbers(self._layers(model), model.backbone)

    def measure(
        self, model: FrozenModel, data: MaskedSplit, extractor: FeatureExtractor
    ) -> Measures:
        """Train on the training images and measure on the test images."""
        size = self.image_size or model.image_size
        crop = Squeezed(size)
        readout = PatchMaps(layers=self._layers(model), norm=self.norm)
        train = extractor.features(model, data.train.source, crop, readout, "train images")
        test = extractor.features(model, data.test.source, crop, readout, "test images")
        learned = rows_of(train)

        def labels(row: int) -> Int16[Tensor, "height width"]:
            return squeezed_labels(read_labels(data.train, learned[row], model.data), size)

        images = self.batch_size * self.steps
        with counting("training a linear classifier on images", images) as count:
            classifier = train_patches(
                train.values,
                labels,
                len(data.classes),
                self,
                seed=extractor.seed,
                device=extractor.device,
                count=count,
            )

        def scores(rows: range) -> Iterator[Float[Tensor, "C h w"]]:
            for row in rows:
                yield classifier.scores(test.values[row : row + 1].flatten(1, 2))[0]

        layers = list(layer_numbers(self._layers(model), model.backbone))
        probed = Probed(scores, details={"layers": layers})
        return measures_of(PREFIX, self, model, data, test, probed, extractor)

    def draw(self, cards: Sequence[Card], file: Path) -> None:
        """Plot the IoU of each class."""
        draw_classes(cards, file, title="Segmentation by a linear classifier of patches")

    def _layers(self, model: FrozenModel) -> tuple[int, ...]:
        return self.layers or pyramid_layers(model.backbone.depth)
