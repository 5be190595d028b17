"""Passes over known densities against passes over the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import random_model

from skmix.engine.after import known
from skmix.engine.kernels import NONE, StudentT
from skmix.engine.loop import Passes
from skmix.engine.problem import open_source
from skmix.engine.records import Options
from skmix.io import open_rows

TAILS = {"gaussian": NONE, "t": StudentT(np.array([3.0, 7.0, 5.0, 4.0]))}


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("given", ["complete", "gaps", "blocks"])
def test_an_e_step_of_known_densities_is_that_of_the_rows(
    tail: str, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    model = replace(random_model(random, 4, 2, 3), tail=TAILS[tail])
    X, codes, weights = 3.0 * random.normal(size=(200, 3)), random.integers(0, 2, 200), random.random(200)
    if given == "gaps":
        X[::3, 1] = np.nan
    rows: Any = (X, codes, weights)
    if given == "blocks":
        blocks = open_rows(X, label=codes, weight=weights, chunk_rows=37)
        rows = (blocks.coded(np.arange(2)),)
    source = open_source(*rows)
    densities = known.with_densities(source, model, "full", 1)
    assert isinstance(densities, known.KnownRows)
    found = []
    for own in (source, densities):
        with Passes.over(own, model.batch(), Options(covariance_type="full")) as passes:
            found.append(passes.expect(*passes.enter(model.batch()))[0])
    expected, statistics = found
    assert_allclose(statistics.log_likelihood, expected.log_likelihood)
    assert_allclose(statistics.mass, expected.mass, atol=1e-12)
    # Too many densities are not kept.
    monkeypatch.setattr(known, "_MOST", 200 * 4 - 1)
    assert known.with_densities(source, model, "full", 1) is source
