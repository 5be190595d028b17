"""Pictures inside the page, as small data URIs."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping
from typing import Any

_WIDEST = 1700
"""Pixels; wider pictures are scaled down."""

_COLOURS = 128
"""Size of the palette, which reduces files to a third."""

_WIDE = 900
"""Pixels; a wider picture has a row to itself."""

_DRAWN_BY_THE_PAGE = re.compile(r"accuracy_|confusion_")
"""Names of pictures that the page shows as charts and tables of its own."""

_PROJECTIONS = re.compile(r"projections_(?P<variant>[^_]+)_(?P<way>[^_]+)_class(?P<digit>\w+)")

_CAPTIONS = {
    "fig1_segments": "The seven segments, numbered as in the paper.",
    "fig2_points_d1": "Digits sampled with half length 1 and half width 0.2, with ellipses of three standard "
    "deviations.",
    "fig3_points_d2": "Digits sampled with half length 2 and half width 0.5, as in the study.",
    "fig4_images": "Images of the training set.",
    "fig5_pca_features": "The principal-axis features of ten images of each digit.",
}


def figure_entries(figures: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return PNG or SVG files as data URIs with captions, in the given order.

    A picture has ``name``, ``caption``, ``uri``, ``width`` and ``height`` in pixels (None for SVG), ``wide``,
    and ``chosen_by``: the model and the digit by which one of many projections is chosen, None for others.
    """
    return [_entry(name, content) for name, content in figures.items() if not _DRAWN_BY_THE_PAGE.match(name)]


def _entry(name: str, content: bytes) -> dict[str, Any]:
    width: int | None = None
    height: int | None = None
    if content.startswith(b"\x89PNG"):
        kind = "image/png"
        content, width, height = _smaller(content)
    elif b"<svg" in content[:2000]:
        kind = "image/svg+xml"
    else:
        raise ValueError(f"figure {name!r} is neither PNG nor SVG: it begins with {content[:8]!r}.")
    caption, chosen_by = _CAPTIONS.get(name) or _sentence(name), None
    if found := _PROJECTIONS.fullmatch(name):
        chosen_by = {"model": f"{found['variant']}, {found['way']}", "digit": found["digit"]}
        caption = (
            f"Kernels of the best run of {found['variant']} ({found['way']}) in every plane of two features, "
            f"ellipses of one standard deviation; line styles show the weights of digit {found['digit']}."
        )
    return {
        "name": name,
        "caption": caption,
        "uri": f"data:{kind};base64,{base64.b64encode(content).decode()}",
        "width": width,
        "height": height,
        "wide": width is None or width > _WIDE,
        "chosen_by": chosen_by,
    }


def _smaller(content: bytes) -> tuple[bytes, int, int]:
    """Return a PNG with a palette, scaled down if it is very wide, and its size."""
    # Installed with matplotlib, which drew the pictures.
    from PIL import Image

    with Image.open(io.BytesIO(content)) as opened:
        # Transparent pixels become white.
        picture = Image.new("RGB", opened.size, "white")
        layered = opened.convert("RGBA")
        picture.paste(layered, mask=layered.getchannel("A"))
    if picture.width > _WIDEST:
        size = (_WIDEST, round(picture.height * _WIDEST / picture.width))
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    small = io.BytesIO()
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(small, "PNG")
    return min(small.getvalue(), content, key=len), picture.width, picture.height


def _sentence(name: str) -> str:
    words = name.replace("_", " ").replace("-", " ").strip()
    return words[:1].upper() + words[1:]
