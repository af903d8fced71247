from typing import Any, Literal

import pytest
from playwright.sync_api import Page

from tests.html_report.browser import AXE, Reports, wait_until_drawn

FINDINGS = """async (where) => (await axe.run(where, {resultTypes: ["violations"]})).violations
    .map(({id, impact, help, nodes}) => ({id, impact, help, nodes: nodes.slice(0, 5)
        .map(({html, failureSummary}) => `${html.slice(0, 200)}: ${failureSummary}`)}))"""


def opened(reports: Reports, name: str, **options: Any) -> Page:
    """The page with all of its sections open, and axe in it, which its policy would not allow."""
    page = reports.open(name, bypass_csp=True, **options)
    wait_until_drawn(page)
    page.evaluate("document.querySelectorAll('details').forEach(it => (it.open = true))")
    page.add_script_tag(path=AXE)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_axe_finds_nothing_on_the_page_and_in_its_dialog(
    reports: Reports, width: int, scheme: Literal["light", "dark"]
) -> None:
    page = opened(reports, "three runs", width=width, scheme=scheme)
    assert page.evaluate(FINDINGS, "html") == []
    page.locator(".value-button").first.click()
    assert page.evaluate(FINDINGS, "dialog[open]") == []


def test_axe_finds_nothing_in_a_report_without_pictures(reports: Reports) -> None:
    assert opened(reports, "without pictures").evaluate(FINDINGS, "html") == []


def test_axe_finds_texts_of_low_contrast(reports: Reports) -> None:
    page = opened(reports, "without pictures")
    page.evaluate("document.querySelector('.made').style.color = '#bbbbbb'")
    assert [each["id"] for each in page.evaluate(FINDINGS, "html")] == ["color-contrast"]
