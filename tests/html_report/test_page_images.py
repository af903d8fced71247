import pytest
from playwright.sync_api import Page

from tests.html_report.browser import Reports, box_of, payload_of, wait_until_drawn

PAINTED = """canvas => {
    const {width, height} = canvas;
    return canvas.getContext('2d').getImageData(0, 0, width, height).data.some(value => value > 0);
}"""


@pytest.fixture
def images(reports: Reports) -> Page:
    page = reports.open()
    wait_until_drawn(page)
    page.locator("canvas.map").scroll_into_view_if_needed()
    page.wait_for_timeout(50)
    return page


def test_neighbours_are_shown_before_training_now_and_in_other_runs(images: Page) -> None:
    table = images.locator("table.neighbours")
    assert table.locator("thead th").all_inner_texts() == [
        "image",
        "untrained",
        "now",
        "random-1",
        "hint-2",
    ]
    run = payload_of("three runs")["runs"][0]
    now = run["neighbours"]["columns"][1]
    names = [run["map"]["names"][i] for i in now["indices"][0]]
    cell = table.locator("tbody tr").first.locator("td").nth(1)
    shown = cell.locator(".thumb").evaluate_all("all => all.map(it => it.title)")
    assert shown == names
    assert f"{now['similarity'][0][0]:.2f}" in cell.inner_text()


def test_the_map_is_painted(images: Page) -> None:
    assert images.locator("canvas.map").evaluate(PAINTED)


def test_a_part_of_a_name_and_a_class_select_files(images: Page) -> None:
    run = payload_of("three runs")["runs"][0]
    wanted = [name for name in run["map"]["names"] if "image_0001" in name]
    images.locator(".selection input").fill("IMAGE_0001")
    assert images.locator(".files li").all_inner_texts() == wanted
    assert images.inner_text(".selection .count") == f"{len(wanted)} of 120 images selected"
    images.locator(".selection input").fill("")
    images.locator(".selection select").select_option(label="class 3")
    assert set(images.locator(".files li").all_inner_texts()) == {
        name for name in run["map"]["names"] if "class_03" in name
    }


@pytest.mark.parametrize("tool", ["rectangle", "lasso"])
def test_drawing_around_images_selects_them_and_copies_their_names(images: Page, tool: str) -> None:
    images.get_by_role("radio", name=tool).check()
    box = box_of(images.locator("canvas.map"))
    left, top = box["x"] + 4, box["y"] + 4
    right, bottom = left + box["width"] - 8, top + box["height"] - 8
    around = [(right, top), (right, bottom), (left, bottom)]
    images.mouse.move(left, top)
    images.mouse.down()
    for x, y in around if tool == "lasso" else [(right, bottom)]:
        images.mouse.move(x, y, steps=5)
    images.mouse.up()
    assert images.inner_text(".selection .count") == "120 of 120 images selected"
    images.context.grant_permissions(["clipboard-read", "clipboard-write"])
    images.get_by_role("button", name="Copy file names").click()
    images.get_by_role("button", name="Copied").wait_for()
    names = payload_of("three runs")["runs"][0]["map"]["names"]
    assert images.evaluate("navigator.clipboard.readText()").splitlines() == names
    images.get_by_role("button", name="Clear").click()
    assert images.inner_text(".selection .count") == "No image selected"


def test_pointing_at_an_image_names_it(images: Page) -> None:
    images.mouse.move(0, 0)
    box = box_of(images.locator("canvas.map"))
    for x in range(20, int(box["width"]), 12):
        images.mouse.move(box["x"] + x, box["y"] + box["height"] / 2)
        if "train/" in images.inner_text(".hovered"):
            return
    raise AssertionError("no image was named")


def test_outliers_duplicates_and_unreadable_files_are_listed(images: Page) -> None:
    text = images.inner_text(".odd")
    for wanted in ("far from every other image", "cosine 0.9991", "train/broken.jpg"):
        assert wanted in text
