"""The documentation's code runs: every python block of a page, in order, in one namespace.

What a block prints is shown below it, in a block of text.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from shown import compare

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
OPTIONAL = {"dask", "distributed", "onnx", "onnxruntime", "pyarrow", "torch"}
# Every page of the guide shows code and a picture, its table of contents apart.
GUIDE = [page for page in sorted((DOCS / "guide").glob("*.md")) if page.stem != "index"]
# In the design a block shows the shape of the code; it names things that are not there.
ELSEWHERE = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if page.parent.name not in ("guide", "_build")
    and page.name != "design.md"
    and BLOCK.search(page.read_text(encoding="utf-8"))
]


def test_small_whole_numbers_are_compared_exactly() -> None:
    """Those of labels and shapes; larger and broken ones may differ a little on other machines."""
    for printed, shown in (("148 of 150", "150 of 150"), ("8 %, 9%", "9 %, 11%"), ("0.98", "0.97")):
        compare(printed, shown)
    for printed, shown in (("[0 1 0]", "[2 2 2]"), ("k0", "k1"), ("8 %", "11 %"), ("0.98", "0.90")):
        with pytest.raises(AssertionError):
            compare(printed, shown)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*GUIDE, *ELSEWHERE], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_the_code_of_a_page_runs_and_prints_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # pages may write files
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for found in BLOCK.finditer(text):
        code, shown = found.groups(default="")
        # Lines are counted as in the page, so that a traceback points into it.
        lines_above = text[: found.start(1)].count("\n")
        try:
            exec(compile("\n" * lines_above + code, str(page), "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            pytest.skip(f"{error.name} is not installed")
        printed = capsys.readouterr().out
        if shown or page in GUIDE:
            compare(printed, shown)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_of_the_guide_shows_a_picture_and_what_its_code_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.search(r"!\[[^\]]+\]\([^)]+\.png\)", text)
    blocks = BLOCK.findall(text)
    assert blocks, f"{page.name} has no python block"
    assert [code for code, shown in blocks if not shown.strip()] == []
