"""Rows with gaps: many patterns, the compiled core and origins. The matrix crosses them with all else."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from by_reference import by_reference
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, expected_pass, random_model, random_rows, stack

from skmix.engine.estep.gaps import rows_by_pattern
from skmix.engine.records import Factor, FloatArray, Options, Parameters, Setting
from skmix.engine.rows.source import GapRows
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of
from skmix.engine.structures.factors import INFLATED
from skmix.engine.threads import Workers

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def with_gaps(random: np.random.Generator, X: FloatArray, share: float = 0.5) -> FloatArray:
    """Return the rows with some values missing, but none with all."""
    is_missing = random.uniform(size=X.shape) < share
    is_missing[np.arange(len(X)), random.integers(0, X.shape[1], size=len(X))] = False
    return np.where(is_missing, np.nan, X)


def setting_of(X: FloatArray, model: Parameters, covariance_type: str) -> tuple[Parameters, Factor, Setting]:
    """Return the arguments of an E-step under a batch of models."""
    structure = structure_of(covariance_type)
    frame = measure(X, structure)
    inside = frame.enter(model, structure)
    return inside, structure.factor(inside.covariances, X.shape[1]), Setting(frame, structure, Workers(1))


@each_type
@pytest.mark.parametrize("passes", [nullcontext, by_reference])
def test_hundreds_of_patterns(covariance_type: str, passes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.engine.estep.gaps.HELD", 1)  # chunks of 64 rows
    random = np.random.default_rng(3)
    X, classes = random_rows(random, 150, 3, 8)
    X, model = with_gaps(random, X), random_model(random, 4, 3, 8, covariance_type)
    assert len(list(rows_by_pattern(X))) > 100
    row_weights = random.uniform(0.2, 3.0, size=len(X))
    options = Options(covariance_type=covariance_type, max_iter=1, tol=0.0, floor=0.0)
    with passes():
        result = fit(X, classes, model.batch(), options, row_weights=row_weights)
    expected, likelihood = expected_pass(X, classes, model, covariance_type, row_weights)
    assert_allclose(result.path[0][0].sum(), likelihood, rtol=1e-9)
    for name in ("weights", "means", "covariances"):
        array = getattr(result.parameters, name)[0]
        assert_allclose(array, getattr(expected, name), rtol=1e-9, atol=1e-11)


def test_a_start_that_loses_digits_is_apart_from_the_others() -> None:
    random = np.random.default_rng(5)
    X, classes = random_rows(random, 200, 3, 8)
    X, model = with_gaps(random, X), random_model(random, 4, 3, 8, "full")
    narrow = np.eye(8) - (1.0 - 1e-9) / 8.0
    batch = stack([replace(model, covariances=np.tile(narrow, (4, 1, 1))), model])
    parameters, factor, setting = setting_of(X, batch, "full")
    inflation = setting.structure.inflation(parameters.covariances, factor)
    assert inflation[0] > INFLATED > inflation[1]
    together = GapRows(X, classes).expect(parameters, factor, setting)[0]
    for r in range(2):
        alone = GapRows(X, classes).expect(parameters.take([r]), factor.take([r]), setting)[0]
        for name in ("log_likelihood", "mass", "first", "second"):
            assert_array_equal(getattr(together, name)[r], getattr(alone, name)[0])
