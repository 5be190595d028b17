"""The reference: parameters and methods have their places, and defaults are those that are documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import skmix

DOCS = Path(__file__).parents[1] / "docs"
ARRANGED = tomllib.loads((DOCS / "api" / "parameters.toml").read_text(encoding="utf-8"))
PAGES = [page for pages in ARRANGED["parameters"].values() for page in pages.items()]
NAMES = ("SharedKernelMixture", "SharedKernelMixtureCV", "SharedKernelClassifier", "SharedKernelClassifierCV")
ESTIMATORS = [getattr(skmix, name) for name in NAMES]
# What scikit-learn adds to every estimator; docs/extensions/inherited.py leaves it out.
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
    assert len(methods) <= 20, methods
    most = 18 if estimator is skmix.SharedKernelMixture else 20
    assert len(inspect.signature(estimator).parameters) <= most


def test_every_parameter_has_one_place_and_a_page_that_exists() -> None:
    ours = {name for estimator in ESTIMATORS for name in inspect.signature(estimator).parameters}
    assert sorted(name for name, _ in PAGES) == sorted(ours)
    for name, page in PAGES:
        assert (DOCS / f"{page}.md").is_file(), name


def test_every_method_has_one_place() -> None:
    listed = [name for names in ARRANGED["methods"].values() for name in names]
    ours = {
        name
        for estimator in (*ESTIMATORS, skmix.GaussianMixture)
        for name, _ in inspect.getmembers(estimator, callable)
        if not MACHINERY.match(name)
    }
    assert sorted(listed) == sorted(ours)


def test_pages_link_to_parameters_that_exist() -> None:
    for page in DOCS.glob("**/*.md"):
        for owner, name in re.findall(r"\{parameter\}`[^<`]*<?(\w+)\.(\w+)>?`", page.read_text("utf-8")):
            assert name in inspect.signature(getattr(skmix, owner)).parameters, f"{page.name}: {name}"


def test_terms_that_pages_name_are_in_the_glossary() -> None:
    glossary = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = {
        line
        for block in re.findall(r"```\{glossary\}\n(.*?)```", glossary, re.DOTALL)
        for line in re.findall(r"^\S.*$", block, re.MULTILINE)
    }
    assert {"row", "pass", "start", "kernel", "group", "class", "population"} <= terms
    for page in DOCS.glob("**/*.md"):
        named = re.findall(r"\{term\}`(?:[^<`]*<)?([^<>`]+)>?`", page.read_text("utf-8"))
        assert set(named) <= terms, page.name


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
    ("room", "at_least"), [("datasets", 2), ("features", 5), ("io", 9), ("plots", 20), ("report", 3)]
)
def test_defaults_are_as_documented(room: str, at_least: int) -> None:
    found = list(defaults(importlib.import_module(f"skmix.{room}")))
    assert len(found) >= at_least
    assert [each for each in found if each[1] != each[2]] == []
