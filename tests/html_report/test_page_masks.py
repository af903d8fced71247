import base64
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page

from attmask.masking import Block, High, Hint, Low, Masker, Random, Strategy
from attmask.randomness import uniform
from tests.html_report.browser import Reports, payload_of, wait_for
from tests.html_report.fake_pictures import GRID, PATCHES

MASKS = """cases => cases.map(({strategy, attention, ...rest}) =>
    Array.from(attmask.masks[strategy](Float32Array.from(attention), rest)))"""
# The hidden patches as they are painted: those whose centre is grey.
PAINTED = """([rows, cols]) => {
    const canvas = document.querySelectorAll('#studio canvas')[2];
    if (!canvas) return [];
    const pen = canvas.getContext('2d');
    return Array.from({length: rows * cols}, (_, patch) => {
        const x = ((patch % cols) + 0.5) * canvas.width / cols;
        const y = (Math.floor(patch / cols) + 0.5) * canvas.height / rows;
        return [...pen.getImageData(x, y, 1, 1).data].join() === '98,98,106,255';
    });
}"""
SHOWN = f"want => ({PAINTED})([{GRID[0]}, {GRID[1]}]).join() === want.join()"


def attention_of(image: int, row: int = 0) -> torch.Tensor:
    stored = payload_of("three runs")["runs"][0]["studio"]["attention"]
    values = np.frombuffer(base64.b64decode(stored["data"]), "<f4").reshape(stored["shape"])
    return torch.from_numpy(values[image, row].copy())[None]


def mask_of(strategy: Strategy, ratio: float, attention: torch.Tensor) -> list[bool]:
    masker = Masker(strategy, (ratio, ratio), probability=1.0)
    hidden: list[bool] = masker(attention, GRID, step=0)[0].tolist()
    return hidden


@pytest.fixture
def studio(reports: Reports) -> Page:
    page = reports.open()
    page.locator("#studio").scroll_into_view_if_needed()
    return page


def choose(studio: Page, strategy: str) -> None:
    studio.locator("#studio").get_by_role("radio", name=strategy, exact=True).check()


def move(studio: Page, slider: str, value: float) -> None:
    studio.locator("#studio .slider", has_text=slider).locator("input").fill(str(value))


def hidden_count(studio: Page) -> int:
    return int(studio.locator("#studio output.count").inner_text().split(" ")[0])


def test_masks_of_the_studio_are_those_of_the_library_bit_for_bit(reports: Reports) -> None:
    rng = np.random.default_rng(0)
    cases: list[dict[str, Any]] = []
    wanted = []
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
    assert reports.open().evaluate(MASKS, cases) == wanted


def test_uniform_numbers_are_those_of_the_library(reports: Reports) -> None:
    counters = [[0, 0, 0], [1, 2, 3], [-5, 2**31, 7], [123456789, 0, 2**40]]
    drawn = reports.open().evaluate(
        "all => all.map(c => attmask.uniform('hint patch', ...c))", counters
    )
    assert drawn == [float(uniform("hint patch", *each)) for each in counters]


@pytest.mark.parametrize("strategy", ["High", "Low", "Random"])
def test_the_slider_hides_int_r_n_patches(studio: Page, strategy: str) -> None:
    choose(studio, strategy)
    kinds: dict[str, Strategy] = {"High": High(), "Low": Low(), "Random": Random()}
    for ratio in (0.1, 0.15, 0.3, 0.55, 0.7, 0.95):
        move(studio, "Mask ratio", ratio)
        assert hidden_count(studio) == int(ratio * PATCHES)
        wait_for(studio, SHOWN, mask_of(kinds[strategy], ratio, attention_of(0)))


def test_high_and_low_follow_every_step_of_the_slider(studio: Page) -> None:
    for percent in range(0, 101, 7):
        move(studio, "Mask ratio", percent / 100)
        assert hidden_count(studio) == int(percent / 100 * PATCHES)


def test_hint_reveals_some_of_the_most_attended_patches(studio: Page) -> None:
    choose(studio, "Hint")
    for ratio, show_max in ((0.3, 0.1), (0.5, 0.4), (0.7, 0.25)):
        move(studio, "Mask ratio", ratio)
        move(studio, "Hint", show_max)
        revealed = int(show_max * ratio * PATCHES)
        assert hidden_count(studio) == int(ratio * PATCHES) - revealed
        said = f"{revealed} of the {int(show_max * PATCHES)} most attended"
        assert studio.inner_text("#studio .note").startswith(said)
        wait_for(studio, SHOWN, mask_of(Hint(show_max), ratio, attention_of(0)))


def test_block_shows_the_stored_masks(studio: Page) -> None:
    choose(studio, "Block")
    for ratio in (0.2, 0.5):
        move(studio, "Mask ratio", ratio)
        wanted = mask_of(Block(), ratio, torch.zeros(1, PATCHES))
        assert hidden_count(studio) == sum(wanted)
        wait_for(studio, SHOWN, wanted)


def test_another_head_and_another_image_change_the_mask(studio: Page) -> None:
    wait_for(studio, SHOWN, mask_of(High(), 0.3, attention_of(0)))
    studio.locator("#studio select").select_option(label="block 12, head 3")
    wait_for(studio, SHOWN, mask_of(High(), 0.3, attention_of(0, row=3)))
    assert "head 3" in studio.locator("#studio figcaption").nth(1).inner_text()
    studio.locator("#studio .thumbs input").nth(2).check()
    wait_for(studio, SHOWN, mask_of(High(), 0.3, attention_of(2, row=3)))
    assert "val/dog/002.jpg\ncat" in studio.locator("#studio figcaption").first.inner_text()


def test_the_hidden_share_of_the_object_is_computed_from_its_patches(studio: Page) -> None:
    stored = payload_of("three runs")["runs"][0]["probe"]["images"][0]["object"]["data"]
    share = np.frombuffer(base64.b64decode(stored), np.uint8).astype(float)
    move(studio, "Mask ratio", 0.1)
    hidden = np.array(mask_of(High(), 0.1, attention_of(0)))
    wanted = f"{100 * share[hidden].sum() / share.sum():.1f} % of the object is hidden."
    assert studio.locator("#studio .object").inner_text() == wanted


def test_choices_are_kept_when_another_run_is_shown(studio: Page) -> None:
    choose(studio, "Low")
    move(studio, "Mask ratio", 0.6)
    studio.evaluate("document.querySelector('#studio .trio').id = 'before'")
    studio.locator("#run").select_option(label="hint-2")
    wait_for(studio, "document.getElementById('before') === null")
    assert hidden_count(studio) == int(0.6 * PATCHES)
    assert studio.locator("#studio").get_by_role("radio", name="Low").is_checked()
