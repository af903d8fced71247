"""Attention on objects, measured as the task and the online evaluation do it."""

from attmask.data.config import DataConfig
from attmask.data.source import Source
from attmask.data.subset import spread_evenly
from attmask.evaluation.features.crops import CenterCrop
from attmask.evaluation.features.forward import forward
from attmask.evaluation.features.images import ImageReader
from attmask.evaluation.features.readout import AttentionMaps
from attmask.evaluation.metrics.objects import (
    ObjectMasks,
    ObjectRegions,
    ObjectReport,
    measure_objects,
    object_report,
)
from attmask.models.backbone import Backbone


def objects_of(
    backbone: Backbone,
    source: Source,
    *,
    image_size: int,
    data: DataConfig,
    ratio: float = 0.3,
    max_images: int | None = None,
    batch_size: int = 64,
    workers: int = 0,
) -> ObjectReport:
    masks = ObjectMasks(source)
    with_mask = sorted(masks.files)
    labels = None if source.labels is None else [int(source.labels[i]) for i in with_mask]
    chosen = [with_mask[i] for i in spread_evenly(labels, len(with_mask), max_images)]
    reader = ImageReader(source, CenterCrop(image_size), data, ObjectRegions(masks, image_size))
    crops = reader.batches(chosen, batch_size=batch_size, workers=workers)
    batches = forward(backbone, crops, AttentionMaps(), data)
    return object_report(measure_objects(batches, backbone.patch_size, ratio=ratio), source, ratio)
