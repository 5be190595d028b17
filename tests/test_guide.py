"""The documentation's code runs: every python block of a page, in order, in one namespace.

What a block prints is shown below it, in a block of text.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from shown import compare

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE)
OPTIONAL = {"dask", "distributed", "onnx", "onnxruntime", "pyarrow", "torch"}
# What makes a page slow, and what it is here: fewer rows, candidates or folds, in the same calls. What such a
# block prints is not compared.
SMALLER = {
    "choosing": {
        "(wine.data, wine.target)": "(wine.data[::2], wine.target[::2])",
        "ClassifierCV(random_state=0)": "ClassifierCV(n_kernels=[3, 6], cv=2, random_state=0)",
        'criterion="bic", random': 'criterion="bic", n_kernels=[2, 3, 4], random',
        "n_kernels=3, cv=3": "n_kernels=3, cv=2",
    },
    "comparison": {"ClassifierCV(random_state=0": "ClassifierCV(n_kernels=[3, 6], cv=2, random_state=0"},
    "sharing": {"n_draws=2": "n_draws=1"},
    "start": {"ClassifierCV(random_state=0)": "ClassifierCV(n_kernels=[3, 6], cv=2, random_state=0)"},
}
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


def test_code_is_as_wide_as_its_column() -> None:
    """In a page of 1400 pixels a line of code has room for 88 characters; a longer one is cut."""
    fence = re.compile(r"^```(?:python|text|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    blocks = [
        (page, block)
        for page in sorted(DOCS.rglob("*.md"))
        if "_build" not in page.parts
        for block in fence.findall(page.read_text(encoding="utf-8"))
    ]
    for example in sorted((DOCS.parent / "examples").rglob("*.py")):
        # The first text and comments are set as prose.
        code = example.read_text(encoding="utf-8").split('"""', 2)[2]
        blocks.append((example, "".join(line for line in code.splitlines(True) if line[0] != "#")))
    wide = [(page.name, line) for page, block in blocks for line in block.splitlines() if len(line) > 88]
    assert wide == []


@pytest.mark.parametrize(
    ("printed", "shown", "alike"),
    [
        ("[2 2 2]\n", "[2 2 2]\n", True),
        ("[0 1 0]\n", "[2 2 2]\n", False),
        ("(4, 4)\n", "(6, 2)\n", False),
        ("k0\n", "k1\n", False),
        ("8 %, 9%\n", "9 %, 11%\n", True),
        ("8 %\n", "11 %\n", False),
        ("148 of 150\n", "150 of 150\n", True),
        ("0.98\n", "0.97\n", True),
        ("0.98\n", "0.90\n", False),
        ("2e-05\n", "1e-05\n", True),
        ("1e+00\n", "1e-05\n", False),
    ],
)
def test_small_whole_numbers_are_compared_exactly(printed: str, shown: str, alike: bool) -> None:
    with nullcontext() if alike else pytest.raises(AssertionError):
        compare(printed, shown)


@pytest.mark.slow
@pytest.mark.parametrize("page", [*GUIDE, *ELSEWHERE], ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_the_code_of_a_page_runs_and_prints_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # pages may write files
    text = page.read_text(encoding="utf-8")
    smaller = SMALLER.get(page.stem, {})
    assert [old for old in smaller if old not in text] == [], f"{page.name} has no such code"
    namespace: dict[str, object] = {}
    for found in BLOCK.finditer(text):
        code, shown = found.groups(default="")
        for old, new in smaller.items():
            code = code.replace(old, new)
        # Lines are counted as in the page, so that a traceback points into it.
        lines_above = text[: found.start(1)].count("\n")
        try:
            exec(compile("\n" * lines_above + code, str(page), "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in OPTIONAL:
                raise
            pytest.skip(f"{error.name} is not installed")
        printed = capsys.readouterr().out
        if code == found[1] and (shown or page in GUIDE):
            compare(printed, shown)


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_of_the_guide_shows_a_picture_and_what_its_code_prints(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.search(r"!\[[^\]]+\]\([^)]+\.png\)", text)
    blocks = BLOCK.findall(text)
    assert blocks, f"{page.name} has no python block"
    assert [code for code, shown in blocks if not shown.strip()] == []
