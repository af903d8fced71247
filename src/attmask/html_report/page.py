"""The page of a report: one HTML file with its style, its script and its data in it."""

import base64
import hashlib
import html
import json
import math
from collections import Counter
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

_LONG = 2000
"""Letters of a text that is worth storing once."""
STYLES = (
    "colours.css",
    "page.css",
    "controls.css",
    "verdict.css",
    "curves.css",
    "patches.css",
    "images.css",
    "records.css",
    "print.css",
)
# All files share one scope, so what is used while the page is set up comes before its use.
SCRIPTS = (
    "decode.js",
    "random.js",
    "masks.js",
    "savings.js",
    "elements.js",
    "ramp.js",
    "export.js",
    "scales.js",
    "chart.js",
    "curves.js",
    "line.js",
    "table.js",
    "compare.js",
    "verdict.js",
    "studio.js",
    "similarity.js",
    "pca.js",
    "thumbnails.js",
    "neighbours.js",
    "map.js",
    "selection.js",
    "odd.js",
    "evaluations.js",
    "timeline.js",
    "about.js",
    "print.js",
    "page.js",
)


def render_page(payload: Mapping[str, Any]) -> str:
    """Render a payload as one HTML page that asks for nothing else, not even from the disk."""
    script = "\n".join(_asset(name) for name in SCRIPTS)
    return Template(_asset("page.html")).substitute(
        title=html.escape(_encodable(str(payload["title"]))),
        script_hash=_hash(script),
        style="\n".join(_asset(name) for name in STYLES),
        payload=_json(shared_once(payload)),
        script=script,
    )


def shared_once(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload with long texts that several runs have stored once, under "shared".

    In their place stands {"shared": number}, which the page turns back.
    """
    counts: Counter[str] = Counter()

    def count(value: Any) -> None:
        if isinstance(value, str) and len(value) > _LONG:
            counts[value] += 1
        elif isinstance(value, Mapping):
            for inner in value.values():
                count(inner)
        elif isinstance(value, list | tuple):
            for inner in value:
                count(inner)

    count(payload)
    numbers = {text: i for i, text in enumerate(t for t, times in counts.items() if times > 1)}

    def replaced(value: Any) -> Any:
        if isinstance(value, str):
            return {"shared": numbers[value]} if value in numbers else value
        if isinstance(value, Mapping):
            return {key: replaced(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [replaced(inner) for inner in value]
        return value

    return {"shared": list(numbers), **replaced(payload)}


def _asset(name: str) -> str:
    return (files("attmask.html_report") / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """The hash by which the Content-Security-Policy lets this script run, and no other."""
    # The template has one line break on each side of the script, which belong to it.
    digest = hashlib.sha256(f"\n{script}\n".encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _json(payload: Mapping[str, Any]) -> str:
    """JSON in ASCII that cannot end the element it stands in."""
    text = json.dumps(_finite(payload), allow_nan=False, separators=(",", ":"))
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def _finite(value: Any) -> Any:
    """The same with null for numbers that JSON does not have: NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value


def _encodable(text: str) -> str:
    """The text without what UTF-8 cannot hold, such as broken letters of file names."""
    return text.encode("utf-8", "replace").decode()
