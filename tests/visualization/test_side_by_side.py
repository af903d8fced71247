from attmask.visualization.sheet import Cell
from attmask.visualization.side_by_side import blocks, headed, rows_by_image
from tests.visualization.networks import network_of, seen_image


def test_rows_of_one_image_stand_together_and_name_the_network_if_there_are_several() -> None:
    networks = [network_of(seen_image(0), seen_image(1), name=name) for name in ("a", "b")]
    groups = rows_by_image(networks, lambda _, seen, number: [Cell(seen.photo, str(number))])
    named = [[(row.title, row.subtitle) for row in group] for group in groups]
    assert named == [
        [("image-0.png", "a"), ("image-0.png", "b")],
        [("image-1.png", "a"), ("image-1.png", "b")],
    ]
    assert [cell.caption for group in groups for row in group for cell in row.cells if cell] == [
        "0", "0", "1", "1",
    ]  # fmt: skip
    (only,) = rows_by_image(networks[:1], lambda *_: [])[0]
    assert (only.title, only.subtitle) == ("image-0.png", "")


def test_titles_name_one_network_and_all_blocks() -> None:
    one, two = (network_of(seen_image(), name=name) for name in ("a", "b"))
    assert headed("Title", [one]) == "Title: a"
    assert headed("Title", [one, two]) == "Title"
    assert blocks([12]) == blocks([12, 12]) == "block 12"
    assert blocks([12, 2, 4]) == "blocks 2, 4 and 12"
