"""The search of the built site finds the right page first; skipped where `make docs` has not been run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

SITE = Path(__file__).parents[1] / "docs" / "_build" / "html"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.skipif(not (SITE / "search.html").is_file(), reason="the documentation has not been built"),
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium"),
]


def found(query: str) -> list[str]:
    """Return the pages that a search finds, the best first."""
    assert CHROMIUM is not None
    flags = ["--headless", "--disable-gpu", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom"]
    address = f"{(SITE / 'search.html').as_uri()}?q={query}"
    dom = subprocess.run([CHROMIUM, *flags, address], capture_output=True, text=True, check=True).stdout
    return re.findall(r'<li class="kind-[^>]*><a href="([^"?#]+)\.html', dom)


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("anomaly", "guide/densities"),
        ("FlowSOM", "guide/gating"),
        ("GaussianMixture", "api/generated/skmix.GaussianMixture"),
    ],
)
def test_a_search_finds_the_right_page_first(query: str, page: str) -> None:
    assert found(query)[0] == page


def test_a_short_word_is_not_found_within_others() -> None:
    assert len(found("process")) > len(found("roc"))
