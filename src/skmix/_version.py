"""The version of skmix."""

__version__ = "0.1.0"
