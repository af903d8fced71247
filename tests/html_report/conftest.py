"""The tests of the page need a browser, some axe-core too: without, they run only if required."""

import os

from tests.html_report.browser import AXE, all_reports, find_browser, reports
from tests.html_report.reported_run import run

__all__ = ["all_reports", "reports", "run"]

REQUIRED = os.environ.get("ATTMASK_REQUIRE_BROWSER") == "1"
collect_ignore_glob = [] if find_browser() or REQUIRED else ["test_page_*.py"]
collect_ignore = [] if AXE.exists() or REQUIRED else ["test_page_accessibility.py"]
