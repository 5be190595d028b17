"""Links of the documentation lead somewhere: pages, anchors, pictures, functions, equations.

The build checks most of this too, and takes minutes; this reads the pages' text alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script

import skmix
from skmix import estimators

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN_BY_THE_BUILD = ("_build", "generated", "gallery")
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(
        page
        for page in sorted([*DOCS.rglob("*.md"), *DOCS.rglob("*.rst")])
        if not set(WRITTEN_BY_THE_BUILD) & set(page.relative_to(DOCS).parts)
        and "_templates" not in page.parts
    ),
]
FORMULAS = (("docs", "*.md"), ("src", "*.py"), ("examples", "*.py"))
LINK = re.compile(r"\]\(([^)\s]+)\)|^:link: (\S+)$", re.MULTILINE)
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r"\{py:(\w+)\}`~?([\w.]+)`")
LISTED = re.compile(r"^   ~?(skmix[\w.]*)$", re.MULTILINE)


def prose(page: Path) -> str:
    """Return a page without its code, where brackets mean something else."""
    text = page.read_text(encoding="utf-8")
    without = FENCE.sub(lambda found: found[0] if found[0].startswith("```{") else "", text)
    return re.sub(r"(?<!\})`[^`\n]+`", "", without)


def slug(heading: str) -> str:
    """Return the anchor that GitHub, and MyST with it, makes of a heading."""
    kept = "".join(c for c in heading.strip().lower() if c.isalnum() or c in " -_")
    return kept.replace(" ", "-")


def found(name: str) -> object:
    """Return what a dotted name stands for, or raise."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:length]))
        except ModuleNotFoundError:  # a part that is no package
            continue
        if spec is not None:
            thing: object = importlib.import_module(".".join(parts[:length]))
            for attribute in parts[length:]:
                thing = getattr(thing, attribute)
            return thing
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_of_a_page_lead_somewhere_and_functions_exist(page: Path) -> None:
    broken = []
    for match in LINK.finditer(prose(page)):
        link = match[1] or match[2] + ".md"
        if "://" in link or link.startswith("mailto:"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if set(WRITTEN_BY_THE_BUILD) & set(target.relative_to(ROOT).parts):
            continue
        if not (target.is_file() or target.with_suffix(".rst").is_file()):
            broken.append(link)
        elif anchor:
            headings = [slug(heading) for heading in HEADING.findall(target.read_text(encoding="utf-8"))]
            if anchor not in headings:
                broken.append(link)
    assert broken == []
    for role, name in ROLE.findall(page.read_text(encoding="utf-8")):
        thing = found(name)
        assert isinstance(thing, ModuleType) == (role == "mod"), f"{name} is no {role}"
        assert isinstance(thing, type) == (role == "class"), f"{name} is no {role}"
    for name in LISTED.findall(page.read_text(encoding="utf-8")) if page.suffix == ".rst" else ():
        found(name)
    for example in re.findall(r"examples/[\w/]+\.py", page.read_text(encoding="utf-8")):
        assert (ROOT / example).is_file(), example


def test_every_equation_has_its_function() -> None:
    text = (DOCS / "mathematics" / "index.md").read_text(encoding="utf-8")
    labels = re.findall(r"^:label: (\S+)$", text, re.MULTILINE)
    assert len(labels) == len(set(labels)) >= 15
    assert set(re.findall(r"\{eq\}`([^`]+)`", text)) <= set(labels)
    # Between an equation and the next, or the next heading, something says where it is computed.
    for label in labels:
        rest = re.split(r"^(?:## |:label: )", text.partition(f":label: {label}\n")[2], flags=re.MULTILINE)[0]
        said = rest.partition("In code: ")[2].partition("\n\n")[0]
        assert "{py:" in said, f"equation {label} has no function"


def test_every_public_package_has_its_page() -> None:
    listed = set(LISTED.findall((DOCS / "api" / "index.rst").read_text(encoding="utf-8")))
    public = {
        f"skmix.{path.stem if path.is_file() else path.name}"
        for path in (ROOT / "src" / "skmix").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").is_file()) and not path.name.startswith("_")
    }
    # What skmix itself has is listed one by one; the engine has its own page.
    others = {"skmix." + name for name in ("cli", "engine", "estimators")}
    inside = ("paper.figures", "paper.harness", "paper.page", "plots.style", "report.rendering")
    modules = (public - others) | {f"skmix.{name}" for name in inside}
    names = {f"skmix.{name}" for name in skmix.__all__}
    names |= {f"skmix.estimators.{name}" for name in set(estimators.__all__) - set(skmix.__all__)}
    assert listed == modules | names
    for name in modules:
        assert importlib.import_module(name).__all__, name


def test_fractions_have_both_parts_in_braces() -> None:
    """MathML would make something else of a shorthand."""
    formulas = load_script("docs/extensions/formulas.py")
    for text in (r"\frac12 X", r"-\frac r2", r"\frac1{m}", r"\frac{1}2", r"a \dfrac{\frac{1}{2}} 3"):
        with pytest.raises(ValueError, match=r"both parts in braces, not \\d?frac"):
            formulas.refuse_shorthand(text)
    formulas.refuse_shorthand(r"\frac{1}{2} + \frac{a_{k}}{\frac {b} {c}} x + \fractional12")
    pages = [
        page for name, kind in FORMULAS for page in (ROOT / name).rglob(kind) if "_build" not in page.parts
    ]
    assert len(pages) > 100
    for page in pages:
        formulas.refuse_shorthand(page.read_text(encoding="utf-8"))
