import re

import pytest
from playwright.sync_api import Page

from tests.html_report import fake_payload
from tests.html_report.browser import Reports

AWKWARD = ("a|b*c_d", "50 % & $x^2$ {z} #1 ~ <b>\\n")


@pytest.fixture
def evaluations(reports: Reports) -> Page:
    """A report with numbers that sort wrongly as texts, and with a missing one."""
    payload = fake_payload.realistic(2)
    rows = payload["evaluations"]["rows"]
    for row, value in zip(rows, (9.5, 100.25, None, -3.0, 0.004, 20.0), strict=True):
        row |= {"value": value, "best": value == 100.25}
    rows[0] |= {"run": "run 10", "task": AWKWARD[0], "title": AWKWARD[1]}
    rows[1] |= {"run": "run 9", "spread": 0.5}
    reports.write("awkward", payload)
    page = reports.open("awkward")
    page.locator("#evaluations").scroll_into_view_if_needed()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    return page


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"#evaluations tbody tr > :nth-child({number})").all_inner_texts()


def sort_by(page: Page, title: str) -> None:
    page.locator("#evaluations").get_by_role("button", name=title, exact=True).click()


def copied(page: Page, kind: str) -> str:
    page.get_by_role("button", name=f"Copy as {kind}").click()
    page.get_by_role("button", name="Copied").wait_for()
    text: str = page.evaluate("navigator.clipboard.readText()")
    return text


def test_numbers_sort_by_size_and_missing_ones_come_last(evaluations: Page) -> None:
    sort_by(evaluations, "value")
    shown = [re.sub(r"[★\s]|best", "", text) for text in column(evaluations, 4)]
    assert shown == ["100.25±0.50", "20.00±0.31", "9.50", "0.004000", "−3.00", "–"]
    sort_by(evaluations, "value")
    shown = [re.sub(r"[★\s]|best", "", text) for text in column(evaluations, 4)]
    assert shown == ["−3.00", "0.004000", "9.50", "20.00±0.31", "100.25±0.50", "–"]


def test_names_sort_by_the_numbers_in_them(evaluations: Page) -> None:
    sort_by(evaluations, "run")
    assert column(evaluations, 1)[-2:] == ["run 9", "run 10"]


def test_the_filter_keeps_rows_with_all_of_its_words(evaluations: Page) -> None:
    evaluations.locator("#evaluations input").fill("random linear")
    assert column(evaluations, 2) == ["linear"]
    assert evaluations.inner_text("#evaluations .rows") == "1 of 6 rows"


def test_images_are_a_column_where_they_differ(reports: Reports) -> None:
    payload = fake_payload.realistic(1)
    for row, images in zip(payload["evaluations"]["rows"], ("pets", "birds", "pets"), strict=True):
        row["images"] = images
    reports.write("images", payload)
    page = reports.open("images")
    page.locator("#evaluations").scroll_into_view_if_needed()
    assert column(page, 3) == ["pets", "birds", "pets"]
    page.locator("#evaluations input").fill("birds")
    assert column(page, 2) == ["linear"]


def test_a_click_on_a_value_shows_its_card_and_its_command(evaluations: Page) -> None:
    evaluations.locator(".value-button").nth(5).click()
    card = evaluations.locator("dialog")
    assert "accuracy with 5 labels a class" in card.inner_text()
    assert "3,669" in card.inner_text()
    command = "attmask evaluate runs/random-1 fewshot --data data/pets"
    assert card.locator("pre").inner_text() == command
    card.get_by_role("button", name="Copy").click()
    card.get_by_role("button", name="Copied").wait_for()
    assert evaluations.evaluate("navigator.clipboard.readText()") == command
    card.get_by_role("button", name="Close").click()
    card.wait_for(state="detached")


def test_the_table_is_copied_as_markdown(evaluations: Page) -> None:
    lines = copied(evaluations, "Markdown").splitlines()
    assert lines[0] == "| run | task | metric | value | unit |"
    assert lines[1] == "| --- | --- | --- | ---: | --- |"
    assert lines[2] == (
        r"| run 10 | a\|b\*c\_d | 50 % &amp; \$x^2\$ {z} #1 \~ &lt;b>\\n | 9.50 | % |"
    )
    assert lines[3] == "| run 9 | linear | linear probe accuracy | **100.25 ± 0.50** | % |"
    assert len(lines) == 8


def test_the_table_is_copied_as_latex_in_the_order_shown(evaluations: Page) -> None:
    sort_by(evaluations, "value")
    lines = copied(evaluations, "LaTeX").splitlines()
    assert lines[:4] == [
        r"\begin{tabular}{lllrl}",
        r"\toprule",
        r"run & task & metric & value & unit \\",
        r"\midrule",
    ]
    assert lines[4] == (
        r"run 9 & linear & linear probe accuracy & \textbf{100.25 $\pm$ 0.50} & \% \\"
    )
    assert lines[6] == (
        r"run 10 & a\textbar{}b*c\_d & 50 \% \& \$x\textasciicircum{}2\$ \{z\} \#1 "
        r"\textasciitilde{} \textless{}b\textgreater{}\textbackslash{}n & 9.50 & \% \\"
    )
    assert lines[8].split(" & ")[3] == "$-$3.00"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
