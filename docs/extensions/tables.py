"""Every table in a box of its own, which scrolls where the page is too narrow for it."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform


class ScrollingTables(SphinxPostTransform):
    """Put a container around each table."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        for table in list(self.document.findall(nodes.table)):
            box = nodes.container(classes=["table-box"])
            table.replace_self(box)
            box += table


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(ScrollingTables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
