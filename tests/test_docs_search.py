"""The search of the built site finds the right page first; skipped where `make docs` has not been run."""

from __future__ import annotations

import json
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


def first(query: str) -> str:
    """Return the page that a search finds first."""
    assert CHROMIUM is not None
    address = f"{(SITE / 'search.html').as_uri()}?q={query.replace(' ', '+')}"
    flags = ["--headless", "--disable-gpu", "--no-sandbox", "--virtual-time-budget=20000", "--dump-dom"]
    dom = subprocess.run([CHROMIUM, *flags, address], capture_output=True, text=True, check=True).stdout
    found = re.search(r'class="search"><li[^>]*><a href="([^"?#]+)\.html', dom)
    assert found, f"nothing is found for {query}"
    return found[1]


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("semi-supervised", "guide/unlabelled"),
        ("anomaly", "guide/densities"),
        ("imputation", "guide/missing-values"),
        ("SharedKernelClassifier", "api/generated/skmix.SharedKernelClassifier"),
    ],
)
def test_a_search_finds_the_right_page_first(query: str, page: str) -> None:
    assert first(query) == page


def test_internals_are_not_found() -> None:
    text = (SITE / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert "skmix" in index["objects"]
    assert [name for name in index["objects"] if name.startswith("skmix.engine")] == []
    internal = {
        n
        for n, name in enumerate(index["docnames"])
        if name.startswith(("api/engine", "api/generated/skmix.engine"))
    }
    assert internal
    for pages in index["terms"].values():
        assert internal.isdisjoint([pages] if isinstance(pages, int) else pages)
