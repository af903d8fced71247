import re

import pytest
from playwright.sync_api import Page

from tests.html_report.browser import Reports, show_lead, wait_until_drawn

FOCUSED = """() => {
    const {activeElement: it} = document;
    const section = it.closest('section')?.id ?? '';
    return `${section} ${it.tagName.toLowerCase()} ${it.type ?? it.getAttribute('role') ?? ''}`;
}"""


@pytest.fixture
def page(reports: Reports) -> Page:
    page = reports.open()
    wait_until_drawn(page)
    return page


def test_tab_reaches_every_control(page: Page) -> None:
    reached = set()
    for _ in range(150):
        page.keyboard.press("Tab")
        reached.add(page.evaluate(FOCUSED).strip())
    assert reached >= {
        "select select-one",
        "button button",
        "comparison button button",
        "curves input radio",
        "curves input checkbox",
        "curves div application",
        "curves div slider",
        "studio input radio",
        "studio input range",
        "studio select select-one",
        "patches div application",
        "patches input range",
        "images canvas application",
        "images input search",
        "images select select-one",
        "evaluations button button",
        "evaluations input search",
        "timeline button button",
        "about summary",
    }


def test_the_first_tab_offers_to_skip_to_the_report(page: Page) -> None:
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_arrow_keys_move_sliders_and_radio_buttons(page: Page) -> None:
    count = page.locator("#studio output.count")
    page.locator("#studio .slider input").first.press("ArrowRight")
    assert count.inner_text() == "60 of 196 (30.6 %)"
    page.locator("#studio").get_by_role("radio", name="High").press("ArrowRight")
    assert page.locator("#studio").get_by_role("radio", name="Low").is_checked()
    assert page.inner_text("#studio .note") == "The least attended patches are hidden."


def test_enter_and_space_sort_a_table(page: Page) -> None:
    head = page.locator("#evaluations th", has_text="value")
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    head.locator("button").press("Space")
    assert head.get_attribute("aria-sort") == "ascending"


def test_arrow_keys_choose_a_patch(page: Page) -> None:
    grid = page.locator(".patch-grid")
    said = page.inner_text("#patches .note")
    row, col = map(int, re.findall(r"(\d+) of 14", said))
    for key in ("ArrowLeft", "ArrowUp", "ArrowUp"):
        grid.press(key)
    assert page.inner_text("#patches .note").startswith(
        f"Row {row - 2} of 14, column {col - 1} of 14."
    )


def test_arrow_keys_move_the_cursor_and_the_line_of_a_chart(page: Page) -> None:
    show_lead(page)
    page.locator(".lead .plot").press("ArrowLeft")
    assert page.inner_text(".lead .where") == "epoch 47"
    page.locator(".lead .plot").press("Home")
    assert page.inner_text(".lead .where") == "epoch 0"
    line = page.locator("[role=slider]")
    before = float(line.get_attribute("aria-valuenow") or "nan")
    line.press("ArrowDown")
    assert float(line.get_attribute("aria-valuenow") or "nan") < before


def test_keys_move_and_zoom_the_map(page: Page) -> None:
    canvas = page.locator("canvas.map")
    canvas.scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    seen = [canvas.screenshot()]
    for key in ("+", "ArrowRight", "0"):
        canvas.press(key)
        page.wait_for_timeout(50)
        seen.append(canvas.screenshot())
    whole, zoomed, moved, again = seen
    assert len({whole, zoomed, moved}) == 3
    assert canvas.evaluate("it => it === document.activeElement")
    assert len(again) == pytest.approx(len(whole), rel=0.05)


def test_escape_closes_a_dialog_and_gives_the_focus_back(page: Page) -> None:
    value = page.locator(".value-button").nth(4)
    value.press("Enter")
    assert page.locator("dialog").is_visible()
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    assert value.evaluate("it => it === document.activeElement")
