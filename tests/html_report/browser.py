"""A real browser for the tests of the page, and axe-core, if this machine has them."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, BrowserContext, FloatRect, Locator, Page, sync_playwright

from attmask.html_report.page import render_page
from tests.html_report import fake_payload

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
SECONDS = 10
AXE = Path(__file__).parents[2] / ".venv/axe/node_modules/axe-core/axe.min.js"
PAYLOADS: dict[str, Callable[[], dict[str, Any]]] = {
    "one run": lambda: fake_payload.realistic(1),
    "three runs": lambda: fake_payload.realistic(3),
    "eight runs": lambda: fake_payload.realistic(8, epochs=300),
    "hostile": fake_payload.hostile,
    "without pictures": fake_payload.without_pictures,
}
payload_of = cache(lambda name: PAYLOADS[name]())


def find_browser() -> str | None:
    """The browser that ATTMASK_BROWSER names, or the first on the PATH."""
    named = os.environ.get("ATTMASK_BROWSER")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


def wait_for(page: Page, script: str, argument: Any = None) -> Any:
    """Evaluate until there is something; Playwright's own waiting breaks the page's policy."""
    deadline = time.monotonic() + SECONDS
    while not (value := page.evaluate(script, argument)):
        assert time.monotonic() < deadline, f"never true: {script}"
        page.wait_for_timeout(10)
    return value


def wait_until_drawn(page: Page) -> None:
    """Wait until every section is drawn, also those that are out of sight."""
    wait_for(page, "[...document.querySelectorAll('.part')].every(it => it.firstChild)")


def box_of(element: Locator) -> FloatRect:
    """Where an element that is shown is on the screen."""
    box = element.bounding_box()
    assert box, "the element is not shown"
    return box


def show_lead(page: Page) -> None:
    """Scroll to the large chart and wait until it is drawn."""
    page.locator(".lead").scroll_into_view_if_needed()
    wait_for(page, "document.querySelector('.lead .plot .line') !== null")


class Reports:
    """Pages of made-up reports, each of which is written to disk once."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self.browser = browser
        self.folder = folder
        self.contexts: list[BrowserContext] = []

    def file(self, name: str) -> Path:
        file = self.folder / f"{name}.html"
        return file if file.exists() else self.write(name, payload_of(name))

    def write(self, name: str, payload: dict[str, Any]) -> Path:
        """A report of any payload, which `open` knows by this name."""
        file = self.folder / f"{name}.html"
        file.write_text(render_page(payload), encoding="utf-8")
        return file

    def blank(
        self,
        *,
        width: int = 1440,
        scheme: Literal["light", "dark"] = "light",
        bypass_csp: bool = False,
    ) -> Page:
        """An empty page of its own context."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            reduced_motion="reduce",
            bypass_csp=bypass_csp,
        )
        self.contexts.append(context)
        context.set_default_timeout(1000 * SECONDS)
        return context.new_page()

    def open(self, name: str = "three runs", **options: Any) -> Page:
        """A report that is ready to use."""
        page = self.blank(**options)
        page.goto(self.file(name).as_uri())
        wait_for(page, "window.attmask !== undefined")
        return page

    def close(self) -> None:
        for context in self.contexts:
            context.close()
        self.contexts.clear()


@pytest.fixture(scope="module")
def all_reports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reports]:
    """One browser and one folder of pages for the tests of a file.

    Not for all tests: processes that others fork meanwhile would inherit the pipe to the driver of
    the browser, which then waits for them at its end.
    """
    path = find_browser()
    assert path, "no browser was found; run make browser or set ATTMASK_BROWSER to its path"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield Reports(browser, tmp_path_factory.mktemp("reports"))
        browser.close()


@pytest.fixture
def reports(all_reports: Reports) -> Iterator[Reports]:
    """The reports; what a test opens is closed after it."""
    yield all_reports
    all_reports.close()
