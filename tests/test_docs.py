"""The documentation: links lead somewhere, tables are what was measured, and the reference is complete."""

from __future__ import annotations

import ast
import csv
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

import pytest
from scripts import load_script
from typer.testing import CliRunner

import skmix
from skmix import model
from skmix.cli import app

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
LINK = re.compile(r"\]\(([^)\s]+)\)|^:link: (\S+)$", re.MULTILINE)
HEADING = re.compile(r"^#{1,4} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^(```+|~~~+).*?^\1", re.DOTALL | re.MULTILINE)
ROLE = re.compile(r"\{py:(\w+)\}`~?([\w.]+)`")
NAMED = re.compile(r"(?<!\})`(skmix\.[\w.]+)`")
# Read on the repository too, where a role is shown as it is written.
PLAIN = ("command-line.md", "notation.md", "reproducing.md", "errata.md")
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
        thing = resolve_name(name)
        assert isinstance(thing, ModuleType) == (role == "mod"), f"{name} is no {role}"
        assert isinstance(thing, type) == (role == "class"), f"{name} is no {role}"
    assert page.name not in PLAIN or not re.search(
        r"\{(py:\w+|doc|parameter|term)\}`", page.read_text("utf-8")
    )
    for name in NAMED.findall(page.read_text(encoding="utf-8")) if DOCS in page.parents else ():
        resolve_name(name)
    for name in LISTED.findall(page.read_text(encoding="utf-8")) if page.suffix == ".rst" else ():
        resolve_name(name)
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
    others = {"skmix." + name for name in ("cli", "engine", "model", "search")}
    inside = ("paper.figures", "paper.page", "plots.style", "report.rendering")
    modules = (public - others) | {f"skmix.{name}" for name in inside}
    names = {f"skmix.{name}" for name in skmix.__all__}
    names |= {f"skmix.model.{name}" for name in set(model.__all__) - set(skmix.__all__)}
    assert listed == modules | names
    for name in modules:
        assert importlib.import_module(name).__all__, name


# ---------------------------------------------------------------- tables

RESULTS = ROOT / "benchmarks" / "results"
VALUE = re.compile(r"\{value\}`([^`]+)`")


def read(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_pages_show_results_that_exist() -> None:
    shown = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for path in re.findall(r"^:file: (\S+)$", text, re.MULTILINE):
            assert (page.parent / path).is_file(), f"{page.name} shows {path}"
            shown.add(Path(path).name)
        for file, *keys, heading in (words.split("; ") for words in VALUE.findall(text)):
            rows = [list(row.values()) for row in read(file)]
            assert sum(row[: len(keys)] == keys for row in rows) == 1, (page.name, keys)
            assert heading in read(file)[0], (page.name, heading)
    # Examples draw the one, and the comparison of cells reads the other.
    assert {path.name for path in RESULTS.glob("*.csv")} - shown == {"digits.csv", "cells_flowsom.csv"}


def test_numbers_are_aligned_and_the_best_is_bold() -> None:
    nodes = pytest.importorskip("docutils.nodes", reason="needs the extra docs")
    tables = load_script("docs/extensions/tables.py")
    lines = [
        ["a", "5.0 ± 1.0", "5.0 ± 0.2", "–", "21000"],
        ["b", "2 of 3 failed", "30.0", "1.2*", "1"],
        ["5", "-1", "+0.5", "3e-05", "2"],
    ]
    heads, rows = (
        [[nodes.entry("", nodes.paragraph("", cell)) for cell in line] for line in part]
        for part in ([["", "one", "two", "three", "four"]], lines)
    )
    tables.align_numbers(heads, rows)
    aligned = [["text-right" in cell["classes"] for cell in row] for row in (*heads, *rows)]
    assert aligned == [[False, True, True, True, True]] * 4
    assert rows[0][4].astext() == "21\u202f000"
    for row in rows:
        tables.mark_best(row[1:3], "least")
    best = [[cell.astext() for cell in row if "best" in cell["classes"]] for row in rows]
    assert best == [["5.0 ± 1.0", "5.0 ± 0.2"], ["30.0"], ["-1"]]


def test_every_command_and_option_is_on_the_page() -> None:
    commands = load_script("docs/extensions/commands.py")
    source = [(DOCS / "command-line.md").read_text(encoding="utf-8")]
    commands.add_commands(None, "command-line", source)
    # Follow --help, which is what users see, instead of the objects that the page is made from.
    pending, seen = [[]], []
    while pending:
        words = pending.pop()
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
        assert not words or f"`skmix {' '.join(words)}`" in source[0], words
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown):
            assert option in source[0], (words, option)
        _, _, listed = shown.partition("Commands")
        names = re.findall(r"^[│ ]+([a-z][a-z-]+)  ", listed, re.MULTILINE)
        pending += [[*words, name] for name in names]
        seen.append(words)
    assert len(seen) > 4
    assert "**Commands**" not in source[0]


# ---------------------------------------------------------------- the reference

METHODS = tomllib.loads((DOCS / "api" / "methods.toml").read_text(encoding="utf-8"))
NAMES = ("SharedKernelMixture", "SharedKernelMixtureCV", "SharedKernelClassifier", "SharedKernelClassifierCV")
ESTIMATORS = [getattr(skmix, name) for name in NAMES]
# What scikit-learn adds to every estimator; docs/extensions/reference.py leaves it out.
MACHINERY = re.compile(r"_|(get_params|set_params|set_output|get_metadata_routing|set_\w+_request)$")

of_each_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.__name__)


def described(estimator: type) -> dict[str, str]:
    """Return what the docstring says of each parameter."""
    text = inspect.getdoc(estimator) or ""
    text = re.split(r"^[A-Z]\w+\n-+$", text.partition("Parameters\n----------\n")[2], flags=re.MULTILINE)[0]
    entries = re.split(r"^(\w+) : .*\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(entries[::2], entries[1::2], strict=True))


@of_each_estimator
def test_every_parameter_says_when_to_change_it(estimator: Any) -> None:
    found = described(estimator)
    assert set(found) == set(inspect.signature(estimator).parameters)
    assert [name for name, text in found.items() if text.count("When to change: ") != 1] == []


@of_each_estimator
def test_the_public_face_stays_small(estimator: Any) -> None:
    added = re.compile(r"set_callbacks|get_feature_names_out")
    methods = [
        name
        for name, _ in inspect.getmembers(estimator, callable)
        if not MACHINERY.match(name) and not added.match(name)
    ]
    assert len(methods) <= 24, methods
    most = 18 if estimator is skmix.SharedKernelMixture else 21
    assert len(inspect.signature(estimator).parameters) <= most


def test_every_method_has_one_place() -> None:
    listed = [name for names in METHODS.values() for name in names]
    ours = {
        name
        for estimator in (*ESTIMATORS, skmix.GaussianMixture)
        for name, _ in inspect.getmembers(estimator, callable)
        if not MACHINERY.match(name)
    }
    assert sorted(listed) == sorted(ours)


# ---------------------------------------------------------------- defaults

_LINE = re.compile(r"^\s*([a-zA-Z_]\w*(?:, \w+)*) : .*\bdefault=(.+)$", re.MULTILINE)


def defaults(module: ModuleType) -> Iterator[tuple[str, Any, Any]]:
    """Yield parameter, documented default and default of everything public in a module."""
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing):
            yield from _defaults(f"{name}", thing.__init__, thing.__doc__)
            for method, function in inspect.getmembers(thing, inspect.isfunction):
                if not method.startswith("_") and function.__module__.startswith("skmix"):
                    yield from _defaults(f"{name}.{method}", function, function.__doc__)
        elif callable(thing):
            yield from _defaults(name, thing, thing.__doc__)


def _defaults(where: str, function: Any, text: str | None) -> Iterator[tuple[str, Any, Any]]:
    parameters = inspect.signature(function).parameters
    for names, written in _LINE.findall(text or ""):
        try:
            told = ast.literal_eval(written)
        except (SyntaxError, ValueError):
            continue  # in words
        several = names.split(", ")
        # Several parameters have a default each, or one for all.
        each = told if isinstance(told, tuple) and len(told) == len(several) > 1 else [told] * len(several)
        for name, value in zip(several, each, strict=True):
            if name in parameters:
                yield f"{where}({name})", value, parameters[name].default


@pytest.mark.parametrize(
    ("room", "at_least"), [("data", 9), ("datasets", 1), ("features", 5), ("plots", 13), ("report", 2)]
)
def test_defaults_are_as_documented(room: str, at_least: int) -> None:
    found = list(defaults(importlib.import_module(f"skmix.{room}")))
    assert len(found) >= at_least
    assert [each for each in found if each[1] != each[2]] == []
