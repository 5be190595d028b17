"""Rows that need not fit into memory: files as blocks for the engine."""

from .source import MAPPED_BYTES, Source, open_rows, source_of

__all__ = ["MAPPED_BYTES", "Source", "open_rows", "source_of"]
