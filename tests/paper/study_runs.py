"""Comparing runs."""

from __future__ import annotations

import numpy as np

from skmix.paper import Run


def same_runs(left: Run, right: Run) -> bool:
    """Whether two runs agree in every bit."""
    mine, theirs = vars(left).copy(), vars(right).copy()
    same_counts = np.array_equal(mine.pop("confusion"), theirs.pop("confusion"))
    likelihoods = mine.pop("log_likelihood"), theirs.pop("log_likelihood")
    return same_counts and np.array_equal(*likelihoods, equal_nan=True) and mine == theirs
