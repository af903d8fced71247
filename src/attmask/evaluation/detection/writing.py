"""The detections in images as files.

OUT/detections.json      a data set in COCO's format, whose annotations have a score
    overlays/NAME.jpg    the image with its sure detections

A whole data set and not COCO's list of results: annotation tools, pycocotools and attmask open it
as it is, and it says which image and which class an annotation belongs to. Its "annotations" are
the list of results.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from PIL import Image

from attmask import atomic, distributed
from attmask.agreement import together
from attmask.data.coco_masks import areas
from attmask.errors import UserError
from attmask.evaluation.detection.detector import TrainedDetector
from attmask.evaluation.features.forward import Autocast
from attmask.evaluation.metrics.detected import SURE
from attmask.evaluation.reporting.detections import results_of
from attmask.evaluation.reporting.objects import found_objects
from attmask.evaluation.reporting.overlay import draw_over
from attmask.evaluation.whole_images import OVERLAYS, WholeImage, WholeImages, Written, in_folder

DETECTIONS = "detections.json"
_QUALITY = 90  # of JPEG


def write_detections(
    detector: TrainedDetector,
    images: WholeImages,
    out: Path,
    autocast: Autocast,
    *,
    threshold: float | None = None,
) -> Written:
    """Detect objects; all processes of a group call it together, and each writes its share.

    Without a threshold, all detections are written, and the sure ones are drawn.
    """
    if threshold is not None and not 0 <= threshold < 1:
        raise UserError(f"threshold={threshold:g} is not a score from 0 to 1; use such as 0.5")
    part_file = out / f".{DETECTIONS}-{distributed.rank()}"

    with ExitStack() as stack:
        with together():
            atomic.make_folder(out)
            lines = stack.enter_context(part_file.open("w", encoding="utf-8"))
        stack.callback(part_file.unlink, missing_ok=True)

        def write(image: WholeImage) -> None:
            found = detector.find(image.shown, image.size_hw, autocast)
            least = 0.0 if threshold is None else threshold
            height, width = image.size_hw
            about = {
                "id": image.number + 1,
                "file_name": image.file_name,
                "width": width,
                "height": height,
            }
            results = results_of(found, image.number + 1, detector.category_ids)
            sizes = None if found.rles is None else areas(found.rles).tolist()
            for row, result in enumerate(results):
                _, _, wide, high = result["bbox"]
                result["area"] = wide * high if sizes is None else sizes[row]
                result["iscrowd"] = 0
            kept = [each for each in results if each["score"] >= least]
            lines.write(json.dumps([about, kept]) + "\n")
            if images.overlays:
                drawn = draw_over(
                    image.picture.numpy(),
                    found_objects(found, detector.names, SURE if threshold is None else threshold),
                    (width, height),
                )
                file = in_folder(out, OVERLAYS, image.name, ".jpg")
                with atomic.file(file, flushes=False) as part:
                    Image.fromarray(drawn).save(part, quality=_QUALITY)

        written = images.each(out, write)
        lines.flush()
        ranks = distributed.gather(distributed.rank())  # all have written their parts
        with together():
            if distributed.is_main():
                _join(detector, out, ranks)
    return written


def _join(detector: TrainedDetector, out: Path, ranks: list[int]) -> None:
    """Write the parts of all processes as one file, image after image."""
    parts = [out / f".{DETECTIONS}-{rank}" for rank in ranks]
    categories = [
        {"id": number, "name": name}
        for number, name in zip(detector.category_ids, detector.names, strict=True)
    ]
    with atomic.file(out / DETECTIONS) as file, file.open("w", encoding="utf-8") as opened:
        opened.write(f'{{"categories": {json.dumps(categories)},\n"images": [')
        opened.writelines(_listed(about for about, _ in _lines(parts)))
        opened.write('],\n"annotations": [')
        every = (each for _, kept in _lines(parts) for each in kept)
        numbered = ({"id": number, **each} for number, each in enumerate(every, start=1))
        opened.writelines(_listed(numbered))
        opened.write("]}\n")


def _lines(parts: list[Path]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    for part in parts:
        with part.open(encoding="utf-8") as opened:
            for line in opened:
                about, kept = json.loads(line)
                yield about, kept


def _listed(records: Iterator[dict[str, Any]]) -> Iterator[str]:
    """Records as the members of a JSON list, one line each."""
    before = "\n"
    for record in records:
        yield before + json.dumps(record)
        before = ",\n"
