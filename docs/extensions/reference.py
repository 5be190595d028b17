"""The reference: names as links, and our classes without what they inherit from scikit-learn."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

import skmix

MACHINERY = re.compile(
    r"(get_params|set_params|set_output|get_metadata_routing|set_\w+_request)$"
)
# Classes of others whose methods say nothing about ours.
BASES = (
    *("BaseEstimator", "BaseException", "ClassifierMixin", "DensityMixin"),
    *("OneToOneFeatureMixin", "TransformerMixin", "tuple"),
)
# Labels and classes of scikit-learn's own documentation, which is on the network, and paragraphs that only
# point there.
FOREIGN = re.compile(r":ref:`([^`<]+?)\s*(?:<[^`>]+>)?`")
POINTERS = re.compile(r"^(?:You can refer|For an example).*?(?:\n\n|\Z)", re.M | re.S)
DOTTED = re.compile(r"skmix(?:\.\w+)+")


def is_machinery(
    app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out methods that all estimators of scikit-learn have."""
    owner = getattr(obj, "__qualname__", "").partition(".")[0]
    return True if MACHINERY.match(name) or owner in BASES else None


def plain_references(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Make text of the references in docstrings that come from scikit-learn."""
    if getattr(obj, "__module__", "").startswith("sklearn"):
        text = POINTERS.sub("", "\n".join(lines) + "\n")
        lines[:] = FOREIGN.sub(r"\1", text).split("\n")


def link_code(app: Sphinx, document: nodes.document) -> None:
    """Link names of the package on pages, where those of `skmix` itself stand first.

    So pages need no roles, which code hosts show as they are written. "scikit-learn's `GaussianMixture`" is
    not ours.
    """
    linked = set()
    inside = (nodes.reference, nodes.title, addnodes.pending_xref)
    for code in list(document.findall(nodes.literal)):
        text, parent = code.astext(), code.parent
        before = "".join(node.astext() for node in parent[: parent.index(code)])
        if isinstance(parent, inside) or before.rstrip().endswith("'s"):
            continue
        if text in skmix.__all__ and text not in linked:
            linked.add(text)
            target = f"skmix.{text}"
        elif DOTTED.fullmatch(text):
            target = text
        else:
            continue
        code.replace_self(
            addnodes.pending_xref(
                "", code.deepcopy(), refdomain="py", reftype="obj", reftarget=target,
                refdoc=app.env.docname, refwarn=True,
            )
        )  # fmt: skip


def leave_plain(
    app: Sphinx, env: Any, node: addnodes.pending_xref, text: nodes.Node
) -> nodes.Node | None:
    """Leave a name as code if the reference does not have it."""
    return text if node.get("reftype") == "obj" else None


def shorten_title(app: Sphinx, document: nodes.document) -> None:
    """Call the page of a method by its name alone in the sidebar, which lists it below its class."""
    name = app.env.docname
    if re.search(r"\.[A-Z]\w*\.\w+$", name):
        listed = next(app.env.tocs[name].findall(nodes.reference))
        listed[:] = [nodes.Text(name.rpartition(".")[2])]
        app.env.titles[name] = nodes.title("", name.rpartition(".")[2])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-skip-member", is_machinery)
    app.connect("autodoc-process-docstring", plain_references)
    app.connect("doctree-read", link_code)
    app.connect("doctree-read", shorten_title, priority=600)
    app.connect("missing-reference", leave_plain)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
