"""The page of a report: one HTML file with its style, its script and its data in it."""

import base64
import hashlib
import html
import json
import math
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

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
        payload=_json(payload),
        script=script,
    )


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
