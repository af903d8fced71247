"""COCO's average precision, held against pycocotools."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attmask import distributed
from attmask.data.coco import Annotated, open_boxed
from attmask.data.coco_masks import encode
from attmask.errors import UserError
from attmask.evaluation.metrics.detected import Found
from attmask.evaluation.metrics.detection import Detection, DetectionScores
from attmask.evaluation.reporting.detections import write_results
from attmask.metric import check_unique, values_by_key
from tests.groups import in_group
from tests.real_data import FOLDER, needs

NAMES = ("dog", "cat", "bird", "whale")
WIDTH, HEIGHT = 260, 200
Scene = tuple[Annotated, Found]


def ellipses(boxes: np.ndarray) -> np.ndarray:
    """The masks of ellipses in boxes."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    x1, y1, x2, y2 = (boxes[:, i, None, None] for i in range(4))
    across = (columns - (x1 + x2) / 2) / ((x2 - x1) / 2)
    down = (rows - (y1 + y2) / 2) / ((y2 - y1) / 2)
    return np.asarray(across**2 + down**2 <= 1)


def random_boxes(generator: np.random.Generator, count: int) -> np.ndarray:
    sides = generator.choice([14, 24, 60, 120, 180], (count, 1)) * generator.uniform(
        0.8, 1.1, (count, 2)
    )
    corners = generator.uniform(0, 1, (count, 2)) * ([WIDTH, HEIGHT] - sides)
    return np.concatenate([corners, corners + sides], axis=1).astype(np.float32)


def annotated(boxes: np.ndarray, labels: np.ndarray, crowds: np.ndarray) -> Annotated:
    coded = encode(ellipses(boxes))
    sizes = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1) * 0.7  # not that of the mask
    return Annotated(
        "image",
        (WIDTH, HEIGHT),
        np.arange(len(boxes)),
        boxes.astype(np.float32),
        labels.astype(np.int64),
        crowds,
        sizes.astype(np.float32),
        tuple(each["counts"] for each in coded),
    )


def found(boxes: np.ndarray, labels: np.ndarray, scores: np.ndarray) -> Found:
    masks = tuple(encode(ellipses(boxes)))
    return Found(boxes.astype(np.float32), scores.astype(np.float32), labels, masks)


def random_scenes(images: int) -> list[Scene]:
    """Objects of three classes with some crowds; detections near them and elsewhere."""
    scenes = []
    for number in range(images):
        generator = np.random.default_rng(number)
        count = int(generator.integers(0, 9))
        boxes, labels = random_boxes(generator, count), generator.integers(0, 3, count)
        sides = np.tile(boxes[:, 2:] - boxes[:, :2], 2)
        near = boxes + generator.normal(0, 0.05, boxes.shape) * sides
        said = np.where(generator.random(count) < 0.2, 1, labels)
        other = random_boxes(generator, 4)
        scenes.append(
            (
                annotated(boxes, labels, generator.random(count) < 0.15),
                found(
                    np.concatenate([near, other]),
                    np.concatenate([said, generator.integers(0, 4, 4)]),
                    generator.random(count + 4),
                ),
            )
        )
    return scenes


def measured(scenes: list[Scene], **other: Any) -> Detection:
    scores = DetectionScores(NAMES, **other)
    for index, (truth, seen) in enumerate(scenes):
        scores.update(index, seen, truth)
    return scores.result()


def by_pycocotools(scenes: list[Scene], kind: str) -> tuple[np.ndarray, np.ndarray]:
    """COCO's twelve numbers and the average precision of each class."""
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    truth: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for index, (objects, seen) in enumerate(scenes):
        for row, box in enumerate(objects.boxes.astype(float)):
            truth.append(
                {
                    "id": len(truth) + 1,
                    "image_id": index + 100,
                    "category_id": int(objects.labels[row]) + 7,
                    "bbox": [*box[:2], *(box[2:] - box[:2])],
                    "area": float(objects.area[row]),
                    "iscrowd": int(objects.is_crowd[row]),
                    "segmentation": objects.rles()[row],
                }
            )
        for row, box in enumerate(seen.boxes.astype(float)):
            shape = (
                {"bbox": [*box[:2], *(box[2:] - box[:2])]}
                if kind == "bbox"
                else {"segmentation": (seen.rles or ())[row]}
            )
            results.append(
                {
                    "image_id": index + 100,
                    "category_id": int(seen.labels[row]) + 7,
                    "score": float(seen.scores[row]),
                    **shape,
                }
            )
    with contextlib.redirect_stdout(io.StringIO()):
        wanted = coco.COCO()
        wanted.dataset = {
            "images": [
                {"id": index + 100, "width": WIDTH, "height": HEIGHT}
                for index in range(len(scenes))
            ],
            "categories": [{"id": n + 7, "name": name} for n, name in enumerate(NAMES)],
            "annotations": truth,
        }
        wanted.createIndex()
        oracle = evaluation.COCOeval(wanted, wanted.loadRes(results), kind)
        oracle.evaluate()
        oracle.accumulate()
        oracle.summarize()
    return oracle.stats, oracle.eval["precision"][:, :, :, 0, -1].mean((0, 1))


def test_all_numbers_are_those_of_pycocotools() -> None:
    scenes = random_scenes(30)
    ours = measured(scenes)
    for kind, theirs in (("box", "bbox"), ("mask", "segm")):
        stats, per_class = by_pycocotools(scenes, theirs)
        assert 0.1 < stats[:6].min() <= stats[:6].max() < 0.95
        np.testing.assert_allclose(ours.coco[kind], stats, atol=1e-6)
        keys = [f"detect.{kind}_{m}" for m in ("ap", "ap50", "ap75", "small", "medium", "large")]
        values = values_by_key(ours.metrics)
        np.testing.assert_allclose([values[key] for key in keys], 100 * stats[:6], atol=1e-4)
        own = [getattr(row, f"{kind}_ap") for row in ours.rows]
        np.testing.assert_allclose(own[:3], 100 * per_class[:3], atol=1e-4)
        assert own[3] is None
        assert per_class[3] == -1
    check_unique(ours.metrics)


def test_objects_are_counted_without_crowds() -> None:
    scenes = random_scenes(30)
    ours = measured(scenes)
    labels = np.concatenate([truth.labels[~truth.is_crowd] for truth, _ in scenes])
    assert [row.objects for row in ours.rows] == np.bincount(labels, minlength=4).tolist()
    assert ours.notes == ("1 class without an object is left out of the means",)


def test_perfect_detections_have_an_average_precision_of_100() -> None:
    scenes = []
    for truth, _ in random_scenes(6):
        kept = truth.chosen(~truth.is_crowd)
        scenes.append((truth, found(kept.boxes, kept.labels, np.ones(len(kept)))))
    ours = measured(scenes)
    assert len(ours.metrics) == 12
    assert all(metric.value == pytest.approx(100) for metric in ours.metrics)
    assert set(ours.f1.values()) == {100.0}


def test_nothing_detected_is_an_average_precision_of_0() -> None:
    none = found(np.zeros((0, 4)), np.zeros(0, dtype=np.int64), np.zeros(0))
    ours = measured([(truth, none) for truth, _ in random_scenes(6)])
    assert {metric.value for metric in ours.metrics} == {0.0}
    assert ours.rows[0].box_ap == ours.rows[0].mask_ap50 == 0.0


def test_measures_of_objects_that_do_not_exist_are_left_out() -> None:
    box = np.array([[10, 10, 40, 40]], dtype=np.float32)
    truth = annotated(box, np.array([1]), np.array([False]))
    ours = measured([(truth, found(box, np.array([1]), np.ones(1)))])
    assert sorted(values_by_key(ours.metrics)) == [
        f"detect.{kind}_{measure}"
        for kind in ("box", "mask")
        for measure in ("ap", "ap50", "ap75", "small")
    ]
    nothing = annotated(box[:0], np.zeros(0), np.zeros(0, dtype=np.bool_))
    with pytest.raises(UserError, match="none of the 1 images to measure on has an object"):
        measured([(nothing, found(box, np.array([1]), np.ones(1)))])


def test_boxes_alone_are_measured_without_masks() -> None:
    scenes = random_scenes(5)
    boxes_alone = [
        (truth, Found(seen.boxes, seen.scores, seen.labels, None)) for truth, seen in scenes
    ]
    ours = measured(boxes_alone, masks=False)
    assert ours.coco == {"box": measured(scenes).coco["box"]}
    assert ours.rows[0].mask_ap is None
    with pytest.raises(ValueError, match="masks=False"):
        measured(boxes_alone)


def test_the_worst_images_come_first() -> None:
    scenes = random_scenes(12)
    ours = measured(scenes)
    ranked = [ours.f1[index] for index in ours.worst_first]
    assert ranked == sorted(ours.f1.values())
    assert ranked[0] < ranked[-1]


def test_several_processes_measure_all_images(tmp_path: Path) -> None:
    scenes = random_scenes(7)

    def work(rank: int) -> tuple[dict[str, tuple[float, ...]], dict[int, float]]:
        scores = DetectionScores(NAMES)
        for index in distributed.share_of(len(scenes)):
            scores.update(index, scenes[index][1], scenes[index][0])
        result = scores.result()
        return dict(result.coco), dict(result.f1)

    alone = measured(scenes)
    for coco, f1 in in_group(2, tmp_path, work):
        assert coco == alone.coco
        assert f1 == alone.f1


@needs("coco128")
def test_detections_in_coco_are_measured_as_pycocotools_does_from_the_files(tmp_path: Path) -> None:
    coco = pytest.importorskip("pycocotools.coco")
    evaluation = pytest.importorskip("pycocotools.cocoeval")
    images = open_boxed(FOLDER / "coco128")["train"]
    scores = DetectionScores(images.names)
    every = {}
    for index in range(len(images)):
        width, height = images.coco.sizes_wh[index].tolist()
        truth = images.annotated(index, (width, height))
        generator = np.random.default_rng(index)
        near = truth.boxes + generator.normal(0, 4, truth.boxes.shape)
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        masks = np.roll(truth.masks(), (2, 1), axis=(1, 2))
        every[index] = Found(
            near.round(2).astype(np.float32),
            generator.integers(1, 1000, len(truth)).astype(np.float32) / np.float32(1000),
            truth.labels,
            tuple(encode(masks)),
        )
        scores.update(index, every[index], truth)
    ours = scores.result()
    file = tmp_path / "results.json"
    write_results(file, every, images)
    results = json.loads(file.read_text())
    for kind, theirs, left_out in (("box", "bbox", "segmentation"), ("mask", "segm", "bbox")):
        own = [{k: v for k, v in result.items() if k != left_out} for result in results]
        with contextlib.redirect_stdout(io.StringIO()):
            wanted = coco.COCO(str(FOLDER / "coco128/annotations/instances_train2017.json"))
            oracle = evaluation.COCOeval(wanted, wanted.loadRes(own), theirs)
            oracle.evaluate()
            oracle.accumulate()
            oracle.summarize()
        np.testing.assert_allclose(ours.coco[kind], oracle.stats, atol=1e-6)


def test_no_images_are_refused() -> None:
    with pytest.raises(ValueError, match="no images"):
        DetectionScores(NAMES).result()
