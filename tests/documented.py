"""What docstrings say of defaults, beside the defaults themselves."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

_LINE = re.compile(r"^\s*([a-zA-Z_]\w*(?:, \w+)*) : .*\bdefault=(.+)$", re.MULTILINE)


def assert_defaults(module: ModuleType, at_least: int) -> None:
    """Check that what a module documents of its defaults is so, and that it documents that many."""
    found = list(defaults(module))
    assert len(found) >= at_least
    assert [each for each in found if each[1] != each[2]] == []


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
