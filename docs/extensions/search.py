"""The site's search leaves out the inside of the engine: its pages, and the names of its functions."""

from __future__ import annotations

from typing import Any

import sphinx.search
from docutils import nodes
from sphinx.application import Sphinx

INTERNAL = ("api/engine", "api/generated/skmix.engine")


def leave_out(app: Sphinx, doctree: nodes.document) -> None:
    """Mark an internal page, so that its text is not indexed."""
    name = app.env.current_document.docname
    if name.startswith(INTERNAL):
        app.env.metadata[name]["no-search"] = True


class PublicIndex(sphinx.search.IndexBuilder):
    """The index of all pages without the functions of the internal ones."""

    def get_objects(self, fn2index: dict[str, int]) -> Any:
        """Return the objects of public pages."""
        public = {
            name: number
            for name, number in fn2index.items()
            if not name.startswith(INTERNAL)
        }
        return super().get_objects(public)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", leave_out)
    sphinx.search.IndexBuilder = PublicIndex  # type: ignore[misc]  # what builders make their index of
    return {"parallel_read_safe": True, "parallel_write_safe": True}
