"""A headless Chromium for the tests of the page, or the reason why there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic import synthetic_results

from skmix.report import write_report

FLAGS = (
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--window-size=1280,900",
)


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(synthetic_results(), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    missing = [name for name, found in (("chromium", program), ("chromedriver", driver)) if not found]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not found: the report is not tested in a browser")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    # Chromium refuses to sandbox itself for root.
    flags = (*FLAGS, "--no-sandbox") if hasattr(os, "getuid") and os.getuid() == 0 else FLAGS
    for flag in (*flags, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    # Scripts and pages may take their time on a busy machine.
    browser.set_script_timeout(600)
    browser.set_page_load_timeout(600)
    yield browser
    browser.quit()
