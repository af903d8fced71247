import base64

import numpy as np
import pytest
from playwright.sync_api import Page

from tests.html_report.browser import Reports, box_of, payload_of, wait_for, wait_until_drawn

SIDE = 14
# The middle pixel of one patch on one canvas.
PIXEL = f"""([selector, patch]) => {{
    const canvas = document.querySelector(selector);
    const x = (patch % {SIDE} + 0.5) * canvas.width / {SIDE};
    const y = (Math.floor(patch / {SIDE}) + 0.5) * canvas.height / {SIDE};
    return [...canvas.getContext('2d').getImageData(x, y, 1, 1).data].slice(0, 3);
}}"""


@pytest.fixture
def patches(reports: Reports) -> Page:
    page = reports.open()
    wait_until_drawn(page)
    page.locator("#patches").scroll_into_view_if_needed()
    return page


def click_patch(page: Page, selector: str, row: int, col: int) -> None:
    box = box_of(page.locator(selector))
    place = {"x": (col + 0.5) * box["width"] / SIDE, "y": (row + 0.5) * box["height"] / SIDE}
    page.locator(selector).click(position={"x": place["x"], "y": place["y"]})


def test_a_click_chooses_a_patch_of_this_or_of_another_image(patches: Page) -> None:
    note = patches.locator("#patches .note")
    click_patch(patches, ".patch-grid canvas", 3, 9)
    assert note.inner_text().startswith("Row 4 of 14, column 10 of 14.")
    click_patch(patches, ".similar figure:nth-child(5) canvas", 12, 0)
    assert note.inner_text().startswith("Row 13 of 14, column 1 of 14.")
    assert patches.locator("#patches .thumbs input").nth(4).is_checked()
    assert patches.locator(".similar figure.own").count() == 1


def test_similarities_are_cosines_of_the_stored_features(patches: Page) -> None:
    stored = payload_of("three runs")["runs"][0]["similarity"]["features"]
    features = np.frombuffer(base64.b64decode(stored["data"]), "i1").reshape(stored["shape"])
    units = features / np.linalg.norm(features.astype(float), axis=-1, keepdims=True)
    found = patches.evaluate(
        """([image, patch, other]) => {
            const {features} = attmask.payload.runs[0].similarity;
            const [images, patches, width] = features.shape, all = attmask.decode(features);
            const from = (image * patches + patch) * width, to = other * patches * width;
            const vectors = all.subarray(to, to + patches * width);
            return Array.from(attmask.cosines(all.subarray(from, from + width), vectors));
        }""",
        [1, 40, 5],
    )
    np.testing.assert_allclose(found, units[5] @ units[1, 40], atol=1e-6)


def test_the_chosen_object_is_brighter_than_the_background_in_every_image(patches: Page) -> None:
    images = payload_of("three runs")["runs"][0]["probe"]["images"]
    objects = [
        np.frombuffer(base64.b64decode(image["object"]["data"]), np.uint8) for image in images
    ]
    chosen = int(np.flatnonzero(objects[0] == 255)[0])
    click_patch(patches, ".patch-grid canvas", *divmod(chosen, SIDE))
    for number, inside in enumerate(objects, start=1):
        canvas = f".similar figure:nth-child({number}) canvas"
        alike, other = (int(np.flatnonzero(inside == value)[-1]) for value in (255, 0))
        bright, dark = (sum(patches.evaluate(PIXEL, [canvas, at])) for at in (alike, other))
        assert bright > 2 * dark


def test_the_slider_shows_the_colours_of_each_epoch(patches: Page) -> None:
    stored = payload_of("three runs")["runs"][0]["pca"]
    colours = np.frombuffer(base64.b64decode(stored["colours"]["data"]), np.uint8)
    colours = colours.reshape(stored["colours"]["shape"])
    canvas = "#patches .part:last-child figure:nth-child(2) canvas"
    for place in (0, 3, 5):
        patches.locator("#patches input[type=range]").fill(str(place))
        assert f"epoch {stored['epochs'][place]}" in patches.inner_text("#patches .slider")
        wanted = colours[place, 1, 100].tolist()
        script = f"([wanted, ...rest]) => ({PIXEL})(rest).join() === wanted.join()"
        wait_for(patches, script, [wanted, canvas, 100])


def test_another_run_is_shown_in_all_of_its_sections(patches: Page) -> None:
    patches.locator("#run").select_option(label="hint-2")
    command = "document.querySelector('#about').textContent.includes('masking.strategy=hint')"
    wait_for(patches, command)
    assert patches.locator(".of-run").all_inner_texts() == ["hint-2"] * 6
    assert "masking hint" in patches.inner_text("#verdict")
