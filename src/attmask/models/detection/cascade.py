"""The cascade: stages of heads, each on the boxes that the one before has refined."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torchvision.models.detection._utils import BalancedPositiveNegativeSampler
from torchvision.ops import batched_nms

from attmask.models.detection.boxes import (
    Samples,
    box_coder,
    giou_loss,
    refine,
    sample,
)
from attmask.models.detection.config import CascadeConfig, DetectionsConfig
from attmask.models.detection.heads import BoxHead, MaskHead, of_class
from attmask.models.detection.instances import Detections, Instances
from attmask.models.detection.masks import mask_loss, mask_targets
from attmask.models.detection.regions import RegionPooler

Maps = Sequence[Float[Tensor, "B channels _ _"]]
Boxes = Sequence[Float[Tensor, "_ 4"]]
Size = tuple[int, int]


class Cascade(nn.Module):
    """A box head and a mask head per stage."""

    def __init__(
        self, channels: int, classes: int, strides: tuple[float, ...], config: CascadeConfig
    ) -> None:
        super().__init__()
        stages = range(len(config.positive_iou))
        self.box_heads = nn.ModuleList(BoxHead(channels, classes, config) for _ in stages)
        self.mask_heads = nn.ModuleList(MaskHead(channels, classes, config) for _ in stages)
        self.classes, self.config = classes, config
        self.learns_masks = True
        """Whether the truth has masks; otherwise the mask heads get gradients of zero."""
        self.pool = RegionPooler(strides, config.finest_scale)
        self.coders = [box_coder(stds) for stds in config.box_stds]
        self.sampler = BalancedPositiveNegativeSampler(config.samples, config.positive_fraction)

    def forward(
        self, maps: Maps, proposals: Boxes, truth: Sequence[Instances]
    ) -> dict[str, Float[Tensor, ""]]:
        """The weighted losses of all stages."""
        losses: dict[str, Tensor] = {}
        boxes = list(proposals)
        for stage, weight in enumerate(self.config.loss_weights):
            samples = self._samples(stage, boxes, truth)
            logits, changes = self._predict(stage, maps, [s.boxes for s in samples])
            labels = torch.cat([s.labels for s in samples])
            box_loss = self._box_loss(stage, changes, samples, truth)
            losses |= {
                f"class_{stage + 1}": weight * F.cross_entropy(logits, labels),
                f"box_{stage + 1}": weight * self.config.box_weight * box_loss,
                f"mask_{stage + 1}": weight * self._mask_loss(stage, maps, samples, truth),
            }
            best = torch.where(labels < self.classes, labels, best_class(logits))
            refined = self._refine(stage, changes, best, samples, truth)
            boxes = [box[~s.added] for box, s in zip(refined, samples, strict=True)]
        return losses

    def detect(
        self, maps: Maps, proposals: Boxes, sizes_hw: Sequence[Size], config: DetectionsConfig
    ) -> list[Detections]:
        """The detections of each image: logits averaged over the stages, boxes of the last one,
        probabilities of masks averaged over the stages."""
        boxes, per_stage = list(proposals), []
        counts = [len(b) for b in boxes]
        for stage in range(len(self.box_heads)):
            logits, changes = self._predict(stage, maps, boxes)
            per_stage.append(logits)
            if stage < len(self.box_heads) - 1:
                parts = of_class(changes, best_class(logits)).split(counts)
                boxes = [
                    refine(box, part, self.coders[stage], size)
                    for box, part, size in zip(boxes, parts, sizes_hw, strict=True)
                ]
        scores = torch.stack(per_stage).mean(0).softmax(dim=1)[:, :-1].split(counts)
        found = [
            choose(score, self._every_class(box, part, size), config)
            for score, box, part, size in zip(
                scores, boxes, changes.split(counts), sizes_hw, strict=True
            )
        ]
        masks = self._masks(maps, [f[0] for f in found], torch.cat([f[2] for f in found]))
        parts = masks.split([len(f[0]) for f in found])
        return [Detections(*f, part) for f, part in zip(found, parts, strict=True)]

    def _samples(self, stage: int, boxes: Boxes, truth: Sequence[Instances]) -> list[Samples]:
        return [
            sample(
                box,
                instances,
                classes=self.classes,
                positive_iou=self.config.positive_iou[stage],
                sampler=self.sampler,
            )
            for box, instances in zip(boxes, truth, strict=True)
        ]

    def _predict(
        self, stage: int, maps: Maps, boxes: Boxes
    ) -> tuple[Float[Tensor, "n outputs"], Float[Tensor, "n classes 4"]]:
        logits, changes = self.box_heads[stage](self.pool(maps, boxes, self.config.box_size))
        return logits, changes

    def _box_loss(
        self,
        stage: int,
        changes: Float[Tensor, "n classes 4"],
        samples: Sequence[Samples],
        truth: Sequence[Instances],
    ) -> Float[Tensor, ""]:
        positive = torch.cat([s.positive for s in samples])
        labels = torch.cat([s.labels for s in samples])[positive]
        boxes = torch.cat([s.boxes for s in samples])[positive]
        predicted = self.coders[stage].decode_single(of_class(changes[positive], labels), boxes)
        matched = [t.boxes[s.matches[s.positive]] for s, t in zip(samples, truth, strict=True)]
        return giou_loss(predicted, torch.cat(matched), len(positive))

    def _mask_loss(
        self, stage: int, maps: Maps, samples: Sequence[Samples], truth: Sequence[Instances]
    ) -> Float[Tensor, ""]:
        if not self.learns_masks:
            return 0 * torch.stack([p.sum() for p in self.mask_heads[stage].parameters()]).sum()
        boxes = [s.boxes[s.positive] for s in samples]
        labels = torch.cat([s.labels[s.positive] for s in samples])
        regions = self.pool(maps, boxes, self.config.mask_size)
        logits = of_class(self.mask_heads[stage](regions), labels)
        targets = [
            mask_targets(t.masks, box, s.matches[s.positive], 2 * self.config.mask_size)
            for t, box, s in zip(truth, boxes, samples, strict=True)
        ]
        return mask_loss(logits, torch.cat(targets))

    def _refine(
        self,
        stage: int,
        changes: Float[Tensor, "n classes 4"],
        labels: Int[Tensor, " n"],
        samples: Sequence[Samples],
        truth: Sequence[Instances],
    ) -> list[Float[Tensor, "_ 4"]]:
        parts = of_class(changes.detach(), labels).split([len(s.labels) for s in samples])
        return [
            refine(s.boxes, part, self.coders[stage], t.size_hw)
            for s, part, t in zip(samples, parts, truth, strict=True)
        ]

    def _every_class(
        self, boxes: Float[Tensor, "n 4"], changes: Float[Tensor, "n classes 4"], size_hw: Size
    ) -> Float[Tensor, "n classes 4"]:
        """The boxes of the last stage, for every class."""
        each = boxes.repeat_interleave(self.classes, dim=0)
        refined = refine(each, changes.flatten(0, 1), self.coders[-1], size_hw)
        return refined.view_as(changes)

    def _masks(self, maps: Maps, boxes: Boxes, labels: Int[Tensor, " n"]) -> Float[Tensor, "n M M"]:
        regions = self.pool(maps, boxes, self.config.mask_size)
        stages = [of_class(head(regions), labels).sigmoid() for head in self.mask_heads]
        return torch.stack(stages).mean(0)


def best_class(logits: Float[Tensor, "n outputs"]) -> Int[Tensor, " n"]:
    """The best class of each box besides the background."""
    return logits[:, :-1].argmax(dim=1)


def choose(
    scores: Float[Tensor, "n classes"],
    boxes: Float[Tensor, "n classes 4"],
    config: DetectionsConfig,
) -> tuple[Float[Tensor, "d 4"], Float[Tensor, " d"], Int[Tensor, " d"]]:
    """Boxes, scores and labels of the detections of an image, best first."""
    rows, labels = torch.where(scores > config.score)
    found, likely = boxes[rows, labels], scores[rows, labels]
    kept = batched_nms(found, likely, labels, config.nms_iou)[: config.count]
    return found[kept], likely[kept], labels[kept]
