"""Rows in blocks: the summary is that of the rows, and a fit is the fit to the rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from calls import Listed, drawn, fit

from skmix.engine import starts
from skmix.engine.records import Options, Parameters, Setting
from skmix.engine.rows.blocks import Block, BlockRows, summarise_blocks
from skmix.engine.rows.source import GapRows
from skmix.engine.rows.summary import measure
from skmix.engine.structures import STRUCTURES, structure_of
from skmix.engine.threads import workers

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


def make_starts(
    X: np.ndarray, codes: np.ndarray, covariance_type: str, n_starts: int = 2, n_classes: int = 3
) -> Parameters:
    structure = structure_of(covariance_type)
    labelled = codes >= 0
    return drawn(
        starts.class_wise,
        np.nan_to_num(X[labelled], nan=0.5),
        codes[labelled],
        starts.Drawing(n_classes, n_starts, 5, measure(X, structure), structure, np.random.RandomState(3)),
    )


def test_blocks_without_a_row_that_counts_change_nothing() -> None:
    X, codes, _ = make_rows()
    weights = np.ones(len(X))
    weights[CUTS[2] : CUTS[4]] = 0.0  # two whole blocks
    kept = weights > 0
    codes[~kept] = 0
    start = make_starts(X, codes, "tied")
    options = Options(covariance_type="tied", max_iter=5)
    frame = measure(X[kept], structure_of("tied"))
    here = fit(X[kept], codes[kept], start, options, frame=frame)
    there = fit(cut(X, codes, weights), None, start, options)
    assert np.allclose(there.parameters.covariances, here.parameters.covariances, rtol=1e-9)
    empty = Listed([Block(X[:0], codes[:0].astype(np.int16)), Block(X[kept], codes[kept].astype(np.int16))])
    again = fit(empty, None, start, options)
    assert np.allclose(again.parameters.covariances, here.parameters.covariances, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", STRUCTURES)
def test_blocks_with_gaps_take_moments_about_given_centres(covariance_type) -> None:
    X, codes, weights = make_rows()
    X[::4, 1] = np.nan
    structure = structure_of(covariance_type)
    frame = measure(X, structure)
    start = frame.enter(make_starts(X, codes, covariance_type), structure)
    factor, far = structure.factor(start.covariances, 3), np.zeros(start.means.shape[:2], dtype=bool)
    far[0, 0] = True
    with workers(1) as pool:
        arguments = start, factor, Setting(frame, structure, pool), (far, start.means + 0.5)
        found, origins = BlockRows(cut(X, codes, weights)).expect(*arguments)
        expected, expected_origins = GapRows(X, codes, weights).expect(*arguments)
    assert np.array_equal(origins, expected_origins)
    for name in ("log_likelihood", "mass", "first", "second"):
        ours, theirs = getattr(found, name), getattr(expected, name)
        assert np.allclose(ours, theirs, rtol=1e-9, atol=1e-9), name


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


def test_rows_of_weight_zero_or_without_any_value_are_left_out() -> None:
    nan = np.nan
    X = np.array([[1.0, nan], [nan, nan], [2.0, 3.0], [4.0, 5.0], [nan, 6.0]])
    block = Block(X, np.arange(5), np.array([1.0, 2.0, 0.0, 3.0, 4.0]), 7)
    for rows, kept in ((block.weighted(), [0, 1, 3, 4]), (block.informative(), [0, 3, 4])):
        expected = Block(X[kept], np.array(kept), block.row_weights[kept], 7)
        for found, values in zip(vars(rows).values(), vars(expected).values(), strict=True):
            assert np.array_equal(found, values, equal_nan=True)


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
