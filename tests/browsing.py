"""Opening pages in the browser of the tests."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

WIDE, PHONE = (1280, 900), (375, 812)


def visit(browser: Any, page: Path, size: tuple[int, int] = WIDE, scheme: str = "light") -> None:
    """Open a page afresh at a size, in light or dark; what earlier pages logged is forgotten."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size is PHONE},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())


def choose(browser: Any, control: str, value: str) -> None:
    """Choose an entry of a select: the value changes, then the event."""
    assert browser.execute_script(
        "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change', {bubbles: true})); return s.value",
        control,
        value,
    ) == value, f"{control} offers no {value}"  # fmt: skip


def fits(browser: Any, size: tuple[int, int]) -> bool:
    """Return whether the page is no wider than the window."""
    inner, outer = browser.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    return bool(inner <= outer == size[0])


def wait_for(browser: Any, script: str) -> Any:
    """Return what a script returns, once that is something: on a busy machine a page may take its time."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 600).until(lambda opened: opened.execute_script(script))


def fetched(browser: Any) -> list[str]:
    """Return the addresses that pages have asked for since the last call, but for files and data."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [each["params"] for each in messages if each["method"] == "Network.requestWillBeSent"]
    assert sent
    addresses = [each["request"]["url"] for each in sent]
    return [address for address in addresses if not address.startswith(("data:", "file:"))]


def embedded(page: str) -> dict[str, Any]:
    """Return the data that a page carries for its scripts."""
    (found,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.S)
    return json.loads(found)
