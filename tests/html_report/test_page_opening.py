import re

import pytest

from tests.html_report.browser import Reports, payload_of, wait_for, wait_until_drawn

MOST_BYTES = 10_000_000
MOST_MILLISECONDS = 1000
MOST_LAYOUT_SHIFT = 0.1
# Sections are measured too, because the page clips what is too wide.
TOO_WIDE = """[...document.querySelectorAll('html, main > section > *, .part > *')]
    .filter(it => it.getBoundingClientRect().right > innerWidth + 1 || it.tagName === 'HTML'
        && it.scrollWidth > innerWidth)
    .map(it => it.outerHTML.slice(0, 200))"""
LOADED = """() => {
    const {loadEventEnd} = performance.getEntriesByType('navigation')[0];
    const [painted] = performance.getEntriesByName('first-contentful-paint');
    return loadEventEnd && painted ? [painted.startTime, loadEventEnd, window.ready] : null;
}"""
NOTE_WHEN_READY = """Object.defineProperty(window, 'attmask', {
    configurable: true,
    set(value) {
        window.ready = performance.now();
        Object.defineProperty(window, 'attmask', {value});
    },
});"""
SUM_SHIFTS = """window.shifted = 0;
const add = (list) => list.getEntries().forEach(({value}) => (window.shifted += value));
new PerformanceObserver(add).observe({type: 'layout-shift', buffered: true});"""


@pytest.mark.parametrize("name", ["three runs", "hostile", "without pictures"])
def test_the_page_opens_from_disk_without_errors_requests_or_overflow(
    reports: Reports, name: str
) -> None:
    page = reports.blank(width=360)
    faults: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url[:200]))
    page.goto(reports.file(name).as_uri())
    wait_until_drawn(page)
    page.evaluate("document.querySelectorAll('details').forEach(it => (it.open = true))")
    for width in (360, 768, 1600, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("scrollTo({top: document.body.scrollHeight, behavior: 'instant'})")
        page.wait_for_timeout(50)
        assert page.evaluate(TOO_WIDE) == [], f"at a width of {width}"
    assert faults == []
    assert [url for url in asked if not url.startswith("data:")] == [reports.file(name).as_uri()]


def test_hostile_texts_are_shown_and_never_become_elements(reports: Reports) -> None:
    page = reports.open("hostile")
    wait_until_drawn(page)
    page.locator(".value-button").first.click()
    assert page.locator("main script, dialog script, img[src='x']").count() == 0
    assert page.locator("script").count() == 2
    assert "<script>alert(1)</script><img src=x onerror=alert(2)>" in page.inner_text("h1")
    sentence = payload_of("hostile")["runs"][0]["verdict"]["sentence"]
    assert page.locator(".verdict bdi").text_content() == sentence
    assert "${7*7}" in page.inner_text("dialog")
    assert page.title().startswith("Which patches to hide<script>alert(1)")


def test_eight_runs_of_300_epochs_load_in_under_a_second(reports: Reports) -> None:
    file = reports.file("eight runs")
    assert file.stat().st_size < MOST_BYTES
    tries = []
    for _ in range(3):
        page = reports.blank()
        page.add_init_script(NOTE_WHEN_READY)
        page.goto(file.as_uri())
        tries.append(max(wait_for(page, LOADED)))
    assert min(tries) < MOST_MILLISECONDS, tries


@pytest.mark.parametrize("width", [360, 1440])
@pytest.mark.parametrize("name", ["three runs", "without pictures"])
def test_nothing_jumps_while_the_reader_scrolls(reports: Reports, name: str, width: int) -> None:
    page = reports.blank(width=width)
    page.add_init_script(SUM_SHIFTS)
    page.goto(reports.file(name).as_uri())
    page.mouse.move(width / 2, 400)
    for _ in range(30):
        page.mouse.wheel(0, 500)
        page.wait_for_timeout(20)
    assert page.evaluate("shifted") < MOST_LAYOUT_SHIFT


def test_the_policy_of_the_page_allows_its_own_script_only(reports: Reports) -> None:
    page = reports.open("without pictures")
    policy = page.locator("meta[http-equiv]").get_attribute("content") or ""
    assert re.fullmatch(
        r"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-.{44}'",
        policy,
    )
    page.evaluate("""() => {
        const script = document.createElement('script');
        script.text = 'window.bad = 1';
        document.body.append(script);
    }""")
    assert page.evaluate("window.bad") is None
