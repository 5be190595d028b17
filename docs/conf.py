"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "skmix"
author = "The skmix developers"
copyright = "2026, the skmix developers"
release = version = installed_version("skmix")

extensions = ["myst_parser"]
myst_enable_extensions = ["amsmath", "dollarmath"]
exclude_patterns = ["_build"]

html_theme = "pydata_sphinx_theme"
html_title = "skmix"
