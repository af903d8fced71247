import json
import math
import re
from typing import Any

from attmask.html_report.page import render_page
from tests.html_report import fake_payload


def payload_in(page: str) -> str:
    found = re.search(r'<script type="application/json" id="payload">(.*?)</script>', page, re.S)
    assert found
    return found[1]


def test_the_payload_comes_back_unchanged_from_the_page() -> None:
    payload = fake_payload.hostile()
    stored = json.loads(payload_in(render_page(payload)))
    shared = stored.pop("shared")

    def put(value: Any) -> Any:
        if isinstance(value, list):
            return [put(each) for each in value]
        if isinstance(value, dict):
            whole = {key: put(each) for key, each in value.items()}
            return shared[value["shared"]] if list(value) == ["shared"] else whole
        return value

    assert put(stored) == payload


def test_what_several_runs_have_is_stored_once() -> None:
    one, eight = (render_page(fake_payload.realistic(runs)) for runs in (1, 8))
    sprite = fake_payload.realistic(1)["runs"][0]["map"]["sprite"]
    assert one.count(sprite) == eight.count(sprite) == 1


def test_the_payload_has_no_letter_that_html_knows() -> None:
    assert not set("<>&") & set(payload_in(render_page(fake_payload.hostile())))


def test_numbers_that_json_does_not_have_become_null() -> None:
    payload = fake_payload.without_pictures() | {"extra": [math.nan, math.inf, 1.5]}
    assert json.loads(payload_in(render_page(payload)))["extra"] == [None, None, 1.5]


def test_a_title_with_letters_that_cannot_be_encoded_is_written() -> None:
    payload = fake_payload.without_pictures() | {"title": "broken \udcff <b>"}
    page = render_page(payload)
    assert "<title>broken ? &lt;b&gt;</title>" in page
    assert page.encode("utf-8")


def test_the_page_names_no_address_of_the_network() -> None:
    page = render_page(fake_payload.without_pictures())
    assert set(re.findall(r"https?://[^\s\"'`]+", page)) == {"http://www.w3.org/2000/svg"}
