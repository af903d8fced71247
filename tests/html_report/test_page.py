from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Browser, Page

from attmask.html_report.page import render_page
from attmask.masking import High, Hint, Low, Masker, Strategy
from attmask.randomness import uniform
from tests.html_report import fake_payload

MASKS = """cases => cases.map(({strategy, attention, ...rest}) =>
    Array.from(attmask.masks[strategy](Float32Array.from(attention), rest)))"""


def opened(browser: Browser, folder: Path, payload: dict[str, Any], width: int = 1440) -> Page:
    file = folder / "report.html"
    file.write_text(render_page(payload), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto(file.as_uri())
    page.wait_for_function("window.attmask !== undefined")
    return page


@pytest.fixture(scope="module")
def page(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Page:
    return opened(browser, tmp_path_factory.mktemp("page"), fake_payload.realistic(2))


def test_masks_of_the_studio_are_those_of_the_library_bit_for_bit(page: Page) -> None:
    rng = np.random.default_rng(0)
    cases, wanted = [], []
    for number in range(1000):
        rows, cols = (int(side) for side in rng.integers(2, 17, 2))
        levels = int(rng.integers(2, 1000))  # few levels: many ties
        attention = (rng.integers(0, levels, rows * cols) / levels).astype(np.float32)
        ratio = float(rng.uniform(0, 1))
        show_max = float(rng.uniform(0, ratio))
        name = ("high", "low", "hint")[number % 3]
        strategies: dict[str, Strategy] = {"high": High(), "low": Low(), "hint": Hint(show_max)}
        masker = Masker(strategies[name], (ratio, ratio), probability=1.0, seed=number)
        mask = masker(
            torch.from_numpy(attention)[None], (rows, cols), step=0, first_image=number % 7
        )
        wanted.append(mask[0].int().tolist())
        cases.append(
            {"strategy": name, "attention": attention.tolist(), "ratio": ratio}
            | {"showMax": show_max, "seed": number, "image": number % 7}
        )
    assert page.evaluate(MASKS, cases) == wanted


def test_uniform_numbers_are_those_of_the_library(page: Page) -> None:
    counters = [[0, 0, 0], [1, 2, 3], [-5, 2**31, 7], [123456789, 0, 2**40]]
    drawn = page.evaluate("all => all.map(c => attmask.uniform('hint patch', ...c))", counters)
    assert drawn == [float(uniform("hint patch", *each)) for each in counters]


@pytest.mark.parametrize("width", [360, 768, 1600, 2560])
@pytest.mark.parametrize("kind", ["realistic", "hostile", "without_pictures"])
def test_the_page_opens_from_disk_without_errors_requests_or_overflow(
    browser: Browser, tmp_path: Path, kind: str, width: int
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_page(getattr(fake_payload, kind)()), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    faults: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url[:200]))
    page.goto(file.as_uri())
    page.wait_for_timeout(1000)
    assert faults == []
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.locator("main script, main img[src='x']").count() == 0
    page.close()
