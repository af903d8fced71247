"""The tests of the page need a browser; without one they are collected only if required."""

import os

from tests.html_report.browser import browser, find_browser

__all__ = ["browser"]

REQUIRED = os.environ.get("ATTMASK_REQUIRE_BROWSER") == "1"
collect_ignore = [] if find_browser() or REQUIRED else ["test_page.py"]
