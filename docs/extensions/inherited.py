"""What our classes inherit from scikit-learn: without its machinery, its references as plain text."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

MACHINERY = re.compile(
    r"(get_params|set_params|set_output|get_metadata_routing|set_\w+_request)$"
)
# Classes of others whose methods say nothing about ours.
BASES = (
    "BaseEstimator",
    "BaseException",
    "ClassifierMixin",
    "DensityMixin",
    "OneToOneFeatureMixin",
    "TransformerMixin",
    "tuple",
)
# Labels and classes of scikit-learn's own documentation, which is on the network.
FOREIGN = re.compile(r":ref:`([^`<]+?)\s*(?:<[^`>]+>)?`")
# Paragraphs that only point there.
POINTERS = re.compile(r"^(?:You can refer|For an example).*?(?:\n\n|\Z)", re.M | re.S)


def is_hidden(name: str, obj: Any) -> bool:
    """Say whether a member of a class is left out of the reference."""
    owner = getattr(obj, "__qualname__", "").partition(".")[0]
    return bool(MACHINERY.match(name)) or owner in BASES


def is_machinery(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    return True if is_hidden(name, obj) else None


def plain_references(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    if getattr(obj, "__module__", "").startswith("sklearn"):
        text = POINTERS.sub("", "\n".join(lines) + "\n")
        lines[:] = FOREIGN.sub(r"\1", text).split("\n")


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-skip-member", is_machinery)
    app.connect("autodoc-process-docstring", plain_references)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
