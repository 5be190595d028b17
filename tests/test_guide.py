"""The guide's code runs: every python block of a page, in order, in one namespace."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "guide").glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
OPTIONAL = {"dask", "distributed", "onnx", "onnxruntime", "pyarrow", "torch"}
LINK = re.compile(r"\]\(([^)#\s]+)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # pages may write files
    text = page.read_text(encoding="utf-8")
    blocks = [(text[: found.start(1)].count("\n"), found[1]) for found in BLOCK.finditer(text)]
    assert blocks, f"{page.name} has no python block"
    namespace: dict[str, object] = {}
    for lines_above, code in blocks:
        # Lines are counted as in the page, so that a traceback points into it.
        try:
            exec(compile("\n" * lines_above + code, str(page), "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            pytest.skip(f"{error.name} is not installed")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_and_pictures_of_a_page_exist(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).is_file()]
    assert missing == []
    assert any(link.endswith(".png") for link in links), f"{page.name} shows no picture"
