"""Sphinx configuration. Nothing here asks the network, neither the build nor the pages."""

from __future__ import annotations

import os
import sys
import tomllib
import warnings
from importlib.metadata import version as installed_version
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder, FileNameSortKey

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "extensions"))
# Pictures of the gallery are the same on every machine.
os.environ.setdefault("MPLBACKEND", "agg")

project = "skmix"
author = "The skmix developers"
copyright = "2026, the skmix developers"
release = version = installed_version("skmix")
# Addresses are set in one place, before the first release; until then there are none.
URLS = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
].get("urls", {})

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "myst_parser",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "commands",
    "mathml",
    "reference",
    "tables",
]
exclude_patterns = [
    "_build",
    "_templates",
    "extensions",
    "gallery/*.py",
    "gallery/*.ipynb",
    "gallery/**/*.py",
]
templates_path = ["_templates"]
suppress_warnings = [
    "config.cache"
]  # the gallery's sort key is a class, which cannot be kept between builds
smartquotes = False  # values in docstrings keep their quotes, options their two dashes
# A reference to a function that is not there is a warning, and warnings are errors.
nitpicky = True
default_role = "py:obj"  # names between single backticks

myst_enable_extensions = [
    "amsmath",
    "attrs_block",
    "colon_fence",
    "deflist",
    "dollarmath",
]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# ---------------------------------------------------------------- reference

autosummary_generate = True
autosummary_imported_members = True
autosummary_ignore_module_all = False
# Headings of methods on pages of classes.
autosummary_context = {
    "method_groups": tomllib.loads((HERE / "api" / "methods.toml").read_text("utf-8"))
}
autodoc_typehints = "none"  # the docstrings say the types, with shapes
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# ---------------------------------------------------------------- gallery

SECTIONS = ("learning", "groups", "densities", "scale", "paper")
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\w+\.py$",
    "subsection_order": ExplicitOrder(
        [*(f"../examples/{name}" for name in SECTIONS), "*"]
    ),
    "within_subsection_order": FileNameSortKey,
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("skmix",),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    # No times: they differ from build to build.
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "parallel": True,  # as many examples at a time as the build has processes
    "capture_repr": (),
    "matplotlib_animations": False,
    "nested_sections": False,
    "thumbnail_size": (400, 280),
    "default_thumb_file": str(HERE / "images" / "illustration.png"),
}
# Examples silence the warnings that they expect.
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")

# ---------------------------------------------------------------- pages

html_theme = "pydata_sphinx_theme"
html_title = "skmix"
html_static_path = ["_static"]
html_css_files = ["skmix.css"]
html_js_files = ["skmix.js"]
html_favicon = "_static/favicon.svg"
html_search_scorer = str(HERE / "search-scorer.js")
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "navbar_align": "left",
    "footer_start": ["copyright"],
    "footer_end": [],
    # Wide tables need the room.
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        **{
            f"evidence/{name}": []
            for name in (
                "cells",
                "comparison",
                "novelty",
                "options",
                "passes",
                "sharing",
            )
        },
    },
    "logo": {"text": "skmix"},
    "search_bar_text": "Search the documentation",
    "icon_links": [
        {"name": name, "url": url, "icon": "fa-solid fa-code-branch"}
        for name, url in URLS.items()
        if name == "Repository"
    ],
}
html_sidebars = {"index": [], "guide/start": [], "reproducing": []}
copybutton_exclude = ".linenos, .gp, .go"
