import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Page

from tests.html_report.browser import Reports, box_of, show_lead, wait_for

PAPER = {"light": "rgb(250, 250, 248)", "dark": "rgb(22, 22, 26)"}
Scheme = Literal["light", "dark"]


def paper(page: Page) -> str:
    colour: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return colour


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_the_scheme_of_the_system(reports: Reports, scheme: Scheme) -> None:
    assert paper(reports.open("without pictures", scheme=scheme)) == PAPER[scheme]


def test_the_button_overrides_the_system(reports: Reports) -> None:
    page = reports.open("without pictures", scheme="dark")
    button = page.locator("#theme")
    for name, colour in (("light", "light"), ("dark", "dark"), ("system", "dark")):
        button.click()
        assert button.inner_text() == f"Theme: {name}"
        assert paper(page) == PAPER[colour]


def test_the_map_is_painted_again_in_another_theme(reports: Reports) -> None:
    page = reports.open()
    page.locator("canvas.map").scroll_into_view_if_needed()
    page.wait_for_timeout(100)
    before = page.locator("canvas.map").evaluate("it => it.toDataURL()")
    page.emulate_media(color_scheme="dark")
    wait_for(page, "before => document.querySelector('.map').toDataURL() !== before", before)


def test_the_page_prints_all_sections_on_light_paper(reports: Reports, tmp_path: Path) -> None:
    page = reports.open(scheme="dark")
    show_lead(page)
    width = page.locator(".lead svg").first.get_attribute("width")
    file = tmp_path / "report.pdf"
    file.write_bytes(page.pdf(format="A4", print_background=True))
    assert file.read_bytes().startswith(b"%PDF-")
    # Back on the screen, all is as it was.
    assert page.locator(".lead svg").first.get_attribute("width") == width
    assert page.locator("details[open]").count() == 4
    assert not page.evaluate("document.documentElement.classList.contains('printing')")
    if shutil.which("pdftotext") is None:
        return
    text = subprocess.run(["pdftotext", file, "-"], capture_output=True, check=True).stdout.decode()
    for wanted in ("Comparison", "58 of 196", "Patch PCA", "train/broken.jpg", "learning rate"):
        assert wanted in text
    for control in ("Smoothing", "Copy as Markdown", "Theme"):
        assert control not in text


def test_a_printed_chart_fits_the_paper_and_keeps_its_line_in_place(reports: Reports) -> None:
    page = reports.open()
    show_lead(page)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert box_of(page.locator(".sheet"))["width"] == 680
    assert box_of(page.locator(".lead"))["width"] <= 680
    assert box_of(page.locator(".lead .plot svg")) == box_of(page.locator(".lead .plot"))
