"""Parts of a package that are imported when they are first used."""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def on_first_use(
    package: str, names: Mapping[str, str], modules: Collection[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package that imports names and modules when asked.

    `names` has the module of each public name, relative to the package; `modules` are attributes themselves.
    """

    def find(name: str) -> Any:
        if name in modules:
            return import_module(f".{name}", package)
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = getattr(import_module(f".{names[name]}", package), name)
        setattr(sys.modules[package], name, found)
        return found

    return find, lambda: sorted({*vars(sys.modules[package]), *names, *modules})
