"""The tests of the page need a browser; without one they are collected only if required."""

import os

from tests.html_report.browser import browser, find_browser
from tests.html_report.reported_run import run

__all__ = ["browser", "run"]

REQUIRED = os.environ.get("ATTMASK_REQUIRE_BROWSER") == "1"
collect_ignore = [] if find_browser() or REQUIRED else ["test_page.py", "test_hostile_run.py"]
