import base64

import numpy as np
import pytest
from playwright.sync_api import Page

from attmask.curves.savings import first_epoch_reaching
from tests.html_report.browser import Reports, box_of, payload_of, show_lead, wait_for

FIRST_EPOCHS = """cases => cases.map(({epochs, values, target, higher}) =>
    attmask.firstEpochReaching(epochs, values, target, higher))"""
AXES = "document.querySelector('.lead .axes').textContent"


def accuracy_of(run: int) -> tuple[np.ndarray, np.ndarray]:
    made = payload_of("three runs")["runs"][run]
    series = made["series"]["knn.top1"]
    stored = made["axes"][series["axis"]]["epoch"], series["values"]
    epochs, values = (np.frombuffer(base64.b64decode(each["data"]), "<f4") for each in stored)
    return epochs.astype(float), values.astype(float)


@pytest.fixture
def curves(reports: Reports) -> Page:
    page = reports.open()
    show_lead(page)
    return page


def test_first_epochs_are_those_of_the_library_on_random_curves(reports: Reports) -> None:
    rng = np.random.default_rng(0)
    cases, wanted = [], []
    for number in range(500):
        count = int(rng.integers(1, 30))
        epochs = np.cumsum(rng.uniform(0.1, 3, count))
        values = np.round(np.cumsum(rng.normal(0.3, 1, count)), int(rng.integers(0, 4)))
        target = float(np.round(rng.uniform(values.min() - 1, values.max() + 1), 1))
        higher = number % 2 == 0
        wanted.append(first_epoch_reaching(epochs, values, target, higher_is_better=higher))
        cases.append(
            {"epochs": epochs.tolist(), "values": values.tolist()}
            | {"target": target, "higher": higher}
        )
    found = reports.open("without pictures").evaluate(FIRST_EPOCHS, cases)
    assert None in wanted
    assert found == [None if epoch is None else pytest.approx(epoch) for epoch in wanted]


def test_the_line_starts_at_the_final_value_of_the_baseline(curves: Page) -> None:
    target = accuracy_of(2)[1][-1]
    epoch = first_epoch_reaching(*accuracy_of(0), target)
    assert epoch is not None
    said = f"epoch {epoch:.1f} of 48 ({100 * (1 - epoch / 48):.0f} % fewer)"
    assert said in curves.locator(".savings li").first.inner_text()
    assert f"{target:.2f} %, the final value of hint-2" in curves.inner_text(".savings-title")


def test_the_line_can_be_dragged_and_reset(curves: Page) -> None:
    before = curves.inner_text(".savings")
    box = box_of(curves.locator(".grip"))
    curves.mouse.move(box["x"] + 5, box["y"] + 10)
    curves.mouse.down()
    curves.mouse.move(box["x"] + 5, box["y"] + 110, steps=4)
    curves.mouse.up()
    value = float(curves.locator("[role=slider]").get_attribute("aria-valuenow") or "nan")
    assert value < accuracy_of(2)[1][-1] - 5
    epoch = first_epoch_reaching(*accuracy_of(1), value)
    assert f"epoch {epoch:.1f} of 48" in curves.locator(".savings li").nth(1).inner_text()
    curves.get_by_role("button", name="Reset to the baseline's final value").click()
    assert curves.inner_text(".savings") == before


def test_a_value_above_all_curves_is_never_reached(curves: Page) -> None:
    curves.locator("[role=slider]").press("End")
    assert curves.inner_text(".savings").count("never reached") == 3


def test_hovering_shows_the_values_of_all_runs_at_an_epoch(curves: Page) -> None:
    box = box_of(curves.locator(".lead .plot"))
    curves.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    readout = curves.inner_text(".lead .readout")
    epoch = int(readout.split()[1])
    assert 20 <= epoch <= 28
    for run in range(3):
        assert f"{accuracy_of(run)[1][epoch]:.2f} %" in readout


def test_dragging_across_a_chart_zooms_and_a_double_click_resets(curves: Page) -> None:
    whole = curves.locator(".lead .axes").text_content()
    box = box_of(curves.locator(".lead .plot"))
    curves.mouse.move(box["x"] + 300, box["y"] + 150)
    curves.mouse.down()
    curves.mouse.move(box["x"] + 500, box["y"] + 150, steps=3)
    curves.mouse.up()
    wait_for(curves, f"whole => {AXES} !== whole", whole)
    assert curves.get_by_role("button", name="Reset zoom").is_enabled()
    curves.locator(".lead .plot").dblclick(position={"x": 300, "y": 150})
    wait_for(curves, f"whole => {AXES} === whole", whole)
    assert curves.get_by_role("button", name="Reset zoom").is_disabled()


def test_runs_are_switched_off_and_on(curves: Page) -> None:
    for checked, lines in ((False, 2), (True, 3)):
        curves.locator("#curves .runs input").nth(1).set_checked(checked)
        wait_for(curves, f"document.querySelectorAll('.lead .plot .line').length === {lines}")
        assert ("random-1" in curves.inner_text(".lead .readout")) is checked


def test_curves_are_shown_against_hours_and_steps(curves: Page) -> None:
    for axis, last in (("hours", "hour 14"), ("step", "step 4,800")):
        curves.get_by_role("radio", name=axis, exact=True).check()
        wait_for(curves, f"{AXES}.includes('{axis}')")
        curves.locator(".lead .plot").press("End")
        assert curves.inner_text(".lead .where") == last


def test_a_run_has_no_value_after_its_end(curves: Page) -> None:
    curves.get_by_role("radio", name="hours", exact=True).check()
    wait_for(curves, f"{AXES}.includes('hours')")
    curves.locator(".lead .plot").press("End")  # the last run took two hours more than the first
    values = curves.locator(".lead .readout b").all_inner_texts()
    assert values == ["–", "–", f"{accuracy_of(2)[1][-1]:.2f} %"]


def test_reference_levels_are_drawn_and_named(curves: Page) -> None:
    assert curves.locator(".lead .level").text_content() == "raw pixels"
