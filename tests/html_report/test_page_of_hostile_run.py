"""The page of a real run whose classes and files have hostile names."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from attmask.api import report
from tests.html_report.browser import Reports, wait_until_drawn
from tests.html_report.reported_run import train

CLASSES = ("<script>alert(1)", "\"'`${7*7}\n\u2028&amp;", "\u202eright to left\u200f")
FILE = "<img src=x onerror=alert(2)>'\"\n{}.png"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    for split, count in (("train", 8), ("val", 2)):
        for name in CLASSES:
            (folder / "images" / split / name).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / "images" / split / name / FILE.format(number))
    run = train(folder / "images", folder / "<b>run&'", "schedule.epochs=1")
    return report(run, out=folder / "page.html", title="</title><script>alert(3)</script>")


def test_no_name_becomes_markup_or_script(reports: Reports, page: Path) -> None:
    opened = reports.blank(width=1000)
    faults: list[str] = []
    opened.on("console", lambda message: faults.append(message.text))
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("dialog", lambda dialog: faults.append(dialog.message))
    opened.goto(page.as_uri())
    wait_until_drawn(opened)
    assert faults == []
    assert opened.locator("main script, main img[src='x'], main b:has-text('run&')").count() == 0
    assert opened.title() == "</title><script>alert(3)</script>"
    shown = opened.locator("#images").inner_text()
    assert "<script>alert(1)" in shown
    assert "right to left" in shown
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_source_of_the_page_has_no_element_of_its_names(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    assert len(re.findall(r"<script", source)) == 2, "the payload and the page's own"
    assert "onerror=alert" not in re.sub(r'id="payload">.*?</script>', "", source, flags=re.DOTALL)
