"""The files of a detection, and what a card keeps of it."""

import json
from pathlib import Path

from attmask.evaluation.metrics.detection import ClassRow, Detection
from attmask.evaluation.reporting.detection import as_details, per_class_csv, write_detection
from tests.evaluation.reporting.test_objects import NAMES, example, found

ROWS = (
    ClassRow("dog", 12, 51.234, 80.0, 40.0, 75.555),
    ClassRow("cat, wild", 3, 0.0, 0.0),
    ClassRow("bird", 0, None, None, None, None),
)


def measured(images: int = 3) -> Detection:
    """The higher the number of an image, the lower its F1."""
    return Detection((), ROWS, {number: 100.0 - number for number in range(images)}, {})


def test_the_table_has_a_line_per_class_and_empty_cells_where_nothing_is_known() -> None:
    assert per_class_csv(measured()).splitlines() == [
        "class,objects,box_ap,box_ap50,mask_ap,mask_ap50",
        "dog,12,51.23,80.00,40.00,75.56",
        '"cat, wild",3,0.00,0.00,,',
        "bird,0,,,,",
    ]


def test_a_card_names_the_worst_images_first_and_not_all_of_many() -> None:
    details = as_details(measured(), lambda image: f"{image}.png")
    assert details["worst"] == [
        {"image": "2.png", "f1": 98.0},
        {"image": "1.png", "f1": 99.0},
        {"image": "0.png", "f1": 100.0},
    ]
    assert details["classes"][0] == {
        "name": "dog",
        "objects": 12,
        "box_ap": 51.234,
        "box_ap50": 80.0,
        "mask_ap": 40.0,
        "mask_ap50": 75.555,
    }
    assert json.loads(json.dumps(details)) == details
    assert len(as_details(measured(50), str)["worst"]) == 20


def test_files_are_written_with_a_picture_only_of_examples(tmp_path: Path) -> None:
    (table,) = write_detection(tmp_path / "new", measured(), [], NAMES, title="network")
    assert table.read_text() == per_class_csv(measured())
    files = write_detection(tmp_path, measured(), [example(found(0.9))], NAMES, title="network")
    assert [file.name for file in files] == ["per_class.csv", "predictions.png"]
    assert files[1].read_bytes().startswith(b"\x89PNG")
