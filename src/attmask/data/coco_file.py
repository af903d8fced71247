"""One annotation file in COCO's format: images, categories and objects, checked and compact.

The 860,000 objects of COCO's training images are arrays of some 270 MB here. The dictionaries of
the JSON file would take gigabytes, in every worker.
"""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from attmask.data.coco_objects import REPAIR, Objects, Segmentations
from attmask.errors import UserError
from attmask.reading import read_regular
from attmask.wording import agree, counted

log = logging.getLogger(__name__)

_LONGEST = 1 << 24  # pixels of a side


@dataclass(frozen=True, eq=False)
class CocoFile:
    """The images, categories and objects of an annotation file.

    The objects of image i are `order[starts[i]:starts[i + 1]]`, in the order of the file.
    """

    file: Path
    image_ids: tuple[int, ...]
    image_files: tuple[str, ...]
    sizes_wh: Int64[np.ndarray, "images 2"]
    category_ids: tuple[int, ...]
    names: tuple[str, ...]
    starts: Int64[np.ndarray, " _"]
    order: Int64[np.ndarray, " kept"]
    ids: Int64[np.ndarray, " a"]
    boxes: Float32[np.ndarray, "a 4"]
    """x1 y1 x2 y2, clipped to the image."""
    labels: Int64[np.ndarray, " a"]
    is_crowd: Bool[np.ndarray, " a"]
    areas: Float32[np.ndarray, " a"]
    """NaN where the file says nothing."""
    segmentations: Segmentations

    @property
    def has_masks(self) -> bool:
        """Whether some object has more than a box."""
        return bool(self.segmentations.runs) or len(self.segmentations.polygons) > 1


def read_coco(file: Path) -> CocoFile:
    """Read and check an annotation file."""
    content = _parsed(file)
    image_ids, image_files, sizes_wh = _images(content["images"], file)
    category_ids, names = _categories(content["categories"], file)
    reader = Objects(file, image_ids, sizes_wh, category_ids)
    for place, annotation in enumerate(content["annotations"], start=1):
        reader.add(annotation, place)
    del content
    boxes = np.array(reader.boxes, dtype=np.float64).reshape(-1, 4)
    images = np.array(reader.images, dtype=np.int64)
    ids = np.array(reader.ids, dtype=np.int64)
    boxes, kept = _inside(boxes, sizes_wh[images], ids, file)
    order = kept[np.argsort(images[kept], kind="stable")]
    per_image = np.bincount(images[kept], minlength=len(image_ids))
    found = CocoFile(
        file,
        tuple(image_ids),
        image_files,
        sizes_wh,
        category_ids,
        names,
        starts=np.concatenate([[0], np.cumsum(per_image)]).astype(np.int64),
        order=order,
        ids=ids,
        boxes=boxes.astype(np.float32),
        labels=np.array(reader.labels, dtype=np.int64),
        is_crowd=np.array(reader.crowds, dtype=np.bool_),
        areas=np.array(reader.areas, dtype=np.float32),
        segmentations=reader.segmentations(),
    )
    if without := reader.without_mask:
        of_all = f"{without:,} of {counted(len(ids), 'object')}"
        have = agree(without, "has", "have")
        log.info("%s: %s %s no segmentation: the mask is the filled box", file, of_all, have)
    return found


def _parsed(file: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads(read_regular(file))
    except OSError as fault:
        raise UserError(f"cannot read {file}: {fault.strerror or fault}") from fault
    except (ValueError, RecursionError) as fault:
        raise UserError(f"{file} is not JSON ({fault}); export the file again") from fault
    for key in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(key), list):
            raise UserError(
                f"{file} has no list of {key}; wanted COCO's format: images, annotations and "
                "categories"
            )
    return {key: content[key] for key in ("images", "annotations", "categories")}


def _images(
    entries: Sequence[Any], file: Path
) -> tuple[dict[int, int], tuple[str, ...], Int64[np.ndarray, "images 2"]]:
    """The place of each image id, the file and the size of each image."""
    places: dict[int, int] = {}
    names: list[str] = []
    sizes: list[tuple[int, int]] = []
    for place, entry in enumerate(entries, start=1):
        known = entry if isinstance(entry, dict) else {}
        what = f"image {known.get('id', f'number {place}')} of {file}"
        for key, kind in (("id", int), ("file_name", str), ("width", int), ("height", int)):
            if type(value := known.get(key)) is not kind:
                wanted = "a name" if kind is str else "a whole number"
                raise UserError(f"{what} has the {key} {value!r}, wanted {wanted}; {REPAIR}")
        if not all(1 <= known[side] <= _LONGEST for side in ("width", "height")):
            size = f"{known['width']} x {known['height']}"
            raise UserError(f"{what} has the size {size}; {REPAIR}")
        if known["id"] in places:
            raise UserError(f"{file} has two images of the id {known['id']}; {REPAIR}")
        places[known["id"]] = len(names)
        names.append(known["file_name"])
        sizes.append((known["width"], known["height"]))
    if not names:
        raise UserError(f"{file} has no images; wanted at least one")
    if (twice := Counter(names).most_common(1)[0])[1] > 1:
        raise UserError(f"{file} has {twice[1]} images of the file {twice[0]}; {REPAIR}")
    return places, tuple(names), np.array(sizes, dtype=np.int64)


def _categories(entries: Sequence[Any], file: Path) -> tuple[tuple[int, ...], tuple[str, ...]]:
    found: dict[int, str] = {}
    for place, entry in enumerate(entries, start=1):
        known = entry if isinstance(entry, dict) else {}
        if type(known.get("id")) is not int or not isinstance(known.get("name"), str):
            raise UserError(f"category number {place} of {file} has no id or no name; {REPAIR}")
        if known["id"] in found:
            raise UserError(f"{file} has two categories of the id {known['id']}; {REPAIR}")
        if known["name"] in found.values():
            raise UserError(f"{file} has two categories called {known['name']}; rename one")
        found[known["id"]] = known["name"]
    if not found:
        raise UserError(f"{file} has no categories; wanted at least one")
    ids = sorted(found)
    return tuple(ids), tuple(found[number] for number in ids)


def _inside(
    xywh: Float64[np.ndarray, "a 4"],
    sizes_wh: Int64[np.ndarray, "a 2"],
    ids: Int64[np.ndarray, " a"],
    file: Path,
) -> tuple[Float64[np.ndarray, "a 4"], Int64[np.ndarray, " kept"]]:
    """The boxes as corners, clipped to their images, and which have an area there."""
    corners = np.concatenate([xywh[:, :2], xywh[:, :2] + xywh[:, 2:]], axis=1)
    clipped = np.clip(corners, 0, np.tile(sizes_wh, 2))
    has_area = (xywh[:, 2:] > 0).all(axis=1)
    overlaps = (clipped[:, 2:].astype(np.float32) > clipped[:, :2].astype(np.float32)).all(axis=1)
    for lost, why in (
        (~has_area, "no width or height"),
        (has_area & ~overlaps, "no area inside the image"),
    ):
        if lost.any():
            count = int(lost.sum())
            boxes = f"{count:,} {agree(count, 'box has', 'boxes have')}"
            log.warning(
                "%s: %s %s, the first is annotation %d; left out",
                *(file, boxes, why, int(ids[lost][0])),
            )
    return clipped, np.flatnonzero(has_area & overlaps)
