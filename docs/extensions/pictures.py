"""Pictures of the pages: each opens at its full size, and thumbnails of the gallery show one panel."""

from __future__ import annotations

import re
from typing import Any

_PICTURE = re.compile(r'<img\b[^>]*?\bsrc="([^"]*_images/[^"]+)"[^>]*>')
_SMALLEST = 0.12
"""Share of the figure that a panel must have to stand for it; smaller ones are parts of a sheet."""
_MARGIN = 0.05
"""Inches around a panel."""


def scrape(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures of a cell as the gallery does, with a picture of the thumbnail before them.

    The gallery makes the thumbnail of the first picture; the page does not show that one.
    """
    import matplotlib.pyplot as plt
    from sphinx_gallery.scrapers import matplotlib_scraper

    if plt.get_fignums():
        figure = plt.figure(plt.get_fignums()[-1])
        figure.savefig(
            next(block_vars["image_path_iterator"]),
            dpi=150,
            bbox_inches=panel_of(figure),
        )
    return str(matplotlib_scraper(block, block_vars, gallery_conf))


def panel_of(figure: Any) -> Any:
    """Return the box, in inches, of the largest panel with its labels; None for a sheet of small ones."""
    figure.draw_without_rendering()
    areas = [
        axes.get_position().width * axes.get_position().height for axes in figure.axes
    ]
    if max(areas, default=0.0) < _SMALLEST:
        return None
    # The first of equally large ones.
    largest = figure.axes[
        max(range(len(areas)), key=lambda place: round(areas[place], 2))
    ]
    box = largest.get_tightbbox(figure.canvas.get_renderer())
    return box.transformed(figure.dpi_scale_trans.inverted()).padded(_MARGIN)


def link(body: str) -> str:
    """Return a page with each picture in a link to its file; those in links already, and thumbnails, stay."""

    def linked(found: re.Match[str]) -> str:
        before = body[: found.start()]
        inside = before.rfind("<a ") > before.rfind("</a>")
        if inside or "_thumb." in found[1]:
            return found[0]
        return f'<a class="picture" href="{found[1]}">{found[0]}</a>'

    return _PICTURE.sub(linked, body)


def _on_page(
    app: Any, name: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    if "body" in context:
        context["body"] = link(context["body"])


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("html-page-context", _on_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
