"""Images with boxes and masks of objects, from annotations in COCO's format."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt8

from attmask.data.coco_file import CocoFile, read_coco
from attmask.data.coco_layout import find_annotations, find_images
from attmask.data.coco_masks import Rle, Segmentation, areas, decode, rle_of
from attmask.data.source import Source, everything
from attmask.data.stores.files import Files
from attmask.data.stores.names import pack
from attmask.errors import UserError


@dataclass(frozen=True, eq=False)
class Annotated:
    """The objects of one image."""

    place: str
    """The picture, for messages."""
    size_wh: tuple[int, int]
    ids: Int64[np.ndarray, " n"]
    boxes: Float32[np.ndarray, "n 4"]
    """x1 y1 x2 y2 in pixels."""
    labels: Int64[np.ndarray, " n"]
    is_crowd: Bool[np.ndarray, " n"]
    """A crowd is a region with several objects, which is not learned and not counted."""
    area: Float32[np.ndarray, " n"]
    """As the file has it, usually that of the mask."""
    segmentations: tuple[Segmentation, ...]

    def __len__(self) -> int:
        return len(self.ids)

    def chosen(self, which: Bool[np.ndarray, " n"]) -> "Annotated":
        """Some of the objects."""
        return Annotated(
            self.place,
            self.size_wh,
            self.ids[which],
            self.boxes[which],
            self.labels[which],
            self.is_crowd[which],
            self.area[which],
            tuple(self.segmentations[row] for row in np.flatnonzero(which).tolist()),
        )

    def rles(self) -> list[Rle]:
        """The masks as run lengths; an object without segmentation fills its box."""
        return self._rles

    @cached_property
    def _rles(self) -> list[Rle]:
        return [self._rle(row) for row in range(len(self))]

    def masks(self) -> UInt8[np.ndarray, "n H W"]:
        """The masks as pixels of 0 and 1."""
        return decode(self.rles(), self.size_wh)

    def _rle(self, row: int) -> Rle:
        try:
            return rle_of(self.segmentations[row], self.boxes[row].tolist(), self.size_wh)
        except UserError:
            raise
        except ValueError as fault:
            raise UserError(
                f"the run lengths of annotation {self.ids[row]}, of {self.place}, cannot be read "
                f"({fault}); correct them, or export the file again"
            ) from fault


@dataclass(frozen=True, eq=False)
class BoxedImages:
    """Images with the objects in them; `rows` are the images of the annotation file."""

    source: Source
    coco: CocoFile
    rows: Int64[np.ndarray, " m"]

    @property
    def names(self) -> tuple[str, ...]:
        """The classes, in the order of their category ids."""
        return self.coco.names

    @property
    def category_ids(self) -> tuple[int, ...]:
        """The id of each class in the annotation file."""
        return self.coco.category_ids

    @cached_property
    def image_ids(self) -> tuple[int, ...]:
        """The id of each image in the annotation file."""
        return tuple(self.coco.image_ids[row] for row in self.rows.tolist())

    @property
    def has_masks(self) -> bool:
        """Whether some objects have more than a box."""
        return self.coco.has_masks

    def __len__(self) -> int:
        return len(self.source)

    def subset(self, indices: Sequence[int] | np.ndarray) -> "BoxedImages":
        """The images of these indices, in the order given."""
        kept = np.asarray(indices, dtype=np.int64)
        return replace(self, source=self.source.subset(kept), rows=self.rows[kept])

    def with_objects(self) -> "BoxedImages":
        """The images that have an object which is not a crowd: those to train on."""
        coco = self.coco
        # reduceat would take the next image's objects for an image without any.
        learned = np.concatenate([[0], np.cumsum(~coco.is_crowd[coco.order])])
        counts = learned[coco.starts[1:]] - learned[coco.starts[:-1]]
        return self.subset(np.flatnonzero(counts[self.rows] > 0))

    def annotated(self, index: int, size_wh: tuple[int, int]) -> Annotated:
        """The objects of image `index`, whose upright picture has this size."""
        coco, image = self.coco, int(self.rows[index])
        width, height = coco.sizes_wh[image].tolist()
        place = self.source.place(index)
        if (width, height) != size_wh:
            raise UserError(_other_size(place, coco.file, (width, height), size_wh))
        own = coco.order[coco.starts[image] : coco.starts[image + 1]]
        found = Annotated(
            place,
            size_wh,
            coco.ids[own],
            coco.boxes[own],
            coco.labels[own],
            coco.is_crowd[own],
            coco.areas[own],
            tuple(coco.segmentations[row] for row in own.tolist()),
        )
        if not np.isnan(found.area).any():
            return found
        known = np.where(np.isnan(found.area), areas(found.rles()), found.area)
        return replace(found, area=known.astype(np.float32))


def open_boxed(data: Path) -> dict[str, BoxedImages]:
    """The splits of a data set in COCO's format: train, perhaps val and test."""
    splits: dict[str, BoxedImages] = {}
    for split, annotations in find_annotations(data).items():
        coco = read_coco(annotations.file)
        root = find_images(annotations, coco.image_files)
        source = everything(root, Files(root, pack(coco.image_files)))
        splits[split] = BoxedImages(source, coco, np.arange(len(source), dtype=np.int64))
    first, *others = (images.coco for images in splits.values())
    for other in others:
        _require_same_categories(first, other)
    return splits


def _require_same_categories(one: CocoFile, other: CocoFile) -> None:
    ours, theirs = (dict(zip(c.category_ids, c.names, strict=True)) for c in (one, other))
    for number in sorted(ours.keys() | theirs.keys()):
        if ours.get(number) != theirs.get(number):
            raise UserError(
                f"category {number} is {ours.get(number, 'missing')} in {one.file} and "
                f"{theirs.get(number, 'missing')} in {other.file}; splits need the same categories"
            )


def _other_size(place: str, file: Path, said_wh: tuple[int, int], size_wh: tuple[int, int]) -> str:
    """Pictures are turned upright by EXIF, so their annotations must be of upright pixels."""
    said, size = ("{} x {}".format(*each) for each in (said_wh, size_wh))
    turned = said_wh == size_wh[::-1]
    advice = (
        "annotate it upright, or remove its EXIF orientation"
        if turned
        else "annotate the picture of this size"
    )
    upright = " upright" if turned else ""
    return f"{place} has {size} pixels{upright}, but {said} in {file}; {advice}"
