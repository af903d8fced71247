from pathlib import Path

import torch

from attmask.evaluation.metrics.segmentation import Segmentation, Segmented
from attmask.evaluation.reporting.segmentation import as_details, per_class_csv, write_segmentation
from tests.evaluation.reporting.test_masks import example


def measured() -> Segmentation:
    counted = Segmented(3)
    counted.update(torch.tensor([[0, 1, 1, 1]]), torch.tensor([[0, 0, 1, -1]]), 0)
    counted.update(torch.tensor([[1, 1]]), torch.tensor([[1, 1]]), 1)
    return counted.result(("sky", "road", "car"))


def test_the_table_has_a_line_per_class_and_empty_cells_where_nothing_is_known() -> None:
    assert per_class_csv(measured()).splitlines() == [
        "class,share_of_pixels,iou,accuracy,confused_with,confused_share",
        "sky,40.00,50.00,50.00,road,50.00",
        "road,60.00,75.00,100.00,,",
        "car,0.00,,,,",
    ]


def test_files_are_written_with_a_picture_only_of_examples(tmp_path: Path) -> None:
    (table,) = write_segmentation(tmp_path, measured(), [], "network")
    assert table.read_text() == per_class_csv(measured())
    files = write_segmentation(tmp_path, measured(), [example(3)], "network")
    assert [file.name for file in files] == ["per_class.csv", "predictions.png"]
    assert all(file.is_file() for file in files)


def test_a_card_names_the_worst_images_first() -> None:
    details = as_details(measured(), lambda image: f"{image}.png")
    assert [image["image"] for image in details["worst"]] == ["0.png", "1.png"]
    assert [row["name"] for row in details["classes"]] == ["sky", "road", "car"]
