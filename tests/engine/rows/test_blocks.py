"""Rows in blocks: the summary is that of the rows, and a fit is the fit to the rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from calls import Listed, fit

from skmix.engine import starts
from skmix.engine.records import Options
from skmix.engine.rows.blocks import Block, summarise_blocks
from skmix.engine.structures import structure_of

CUTS = [0, 7, 60, 61, 200, 480, 600]


def make_rows() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of three overlapping classes, their codes and weights; class 2 is in two blocks alone."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 2, CUTS[-1])
    codes[70:150] = 2
    codes[500:520] = 2
    centres = np.array([[0.0, 0.0, 3.0], [2.0, 1.0, 0.0], [-1.0, 4.0, 1.0]])
    X = centres[codes] + random.normal(size=(CUTS[-1], 3)) * [1.0, 0.5, 2.0] + [1e3, 0.0, -5.0]
    X[::3] += [0.0, 2.0, 0.0]
    return X, codes, random.uniform(0.2, 3.0, size=len(codes))


def cut(X: np.ndarray, codes: np.ndarray, weights: np.ndarray | None = None) -> Listed:
    """Return the rows in blocks of very different sizes."""
    codes = codes.astype(np.int16)
    return Listed(
        [Block(X[a:b], codes[a:b], None if weights is None else weights[a:b]) for a, b in pairwise(CUTS)]
    )


# ---------------------------------------------------------------- rows without a class, classes apart


@pytest.mark.parametrize("kind", ["complete", "gaps", "blocks"])
def test_rows_without_a_class_need_a_class_prior(kind: str) -> None:
    """They would otherwise count as rows of the last class, whether other rows are of it or not."""
    X, codes, _ = make_rows()
    codes = np.where(codes == 1, -1, codes)
    if kind == "gaps":
        X[::4, 1] = np.nan
    for classes in (codes, np.minimum(codes, 0)):
        rows = cut(X, classes) if kind == "blocks" else X
        start = starts.uniform(1, 4, 3, 3, structure_of("full"), np.random.RandomState(0))
        with pytest.raises(ValueError, match=f"{np.sum(classes < 0)} rows have no label, .*no class_prior"):
            fit(rows, classes, start, Options(max_iter=1))
        found = fit(rows, classes, replace(start, class_prior=np.full((1, 3), 1 / 3)), Options(max_iter=1))
        assert found.log_likelihood.shape == (1, 4)


# ---------------------------------------------------------------- the summary


ROWS, CODES, WEIGHTS = make_rows()
INFINITE = ROWS.copy()
INFINITE[77, 1] = np.inf


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([Block(ROWS[9:], CODES[:9])], r"Block 0 has 591 rows, but labels of shape \(9,\)"),
        ([Block(ROWS, weights=WEIGHTS[:9])], r"600 rows, but weights of shape \(9,\)"),
        ([Block(ROWS[:61]), Block(INFINITE[61:])], "infinity: feature 1 in row 16 of block 1"),
        ([Block(ROWS, weights=np.where(CODES == 1, -1.0, WEIGHTS))], "not negative, got -1"),
        ([Block(ROWS, weights=np.where(CODES == 1, np.nan, WEIGHTS))], "must be finite and not negative"),
        ([Block(ROWS, weights=np.where(CODES == 1, np.inf, WEIGHTS))], "must be finite and not negative"),
    ],
)
def test_bad_blocks_are_refused(blocks: list[Block], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.engine.rows.blocks._CHECKED", 4)
    with pytest.raises(ValueError, match=words):
        summarise_blocks(Listed(blocks))
