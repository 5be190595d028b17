"""Rows in memory, with gaps, and in blocks."""
