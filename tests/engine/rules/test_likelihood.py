"""Maximum likelihood with priors: the M-step by hand, penalised objectives, and hierarchical weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from skmix.engine import loop as em
from skmix.engine.problem import open_source
from skmix.engine.records import FloatArray, Options, Parameters, Status
from skmix.engine.rows.summary import measure
from skmix.engine.rules.weights import learn_concentration, log_evidence
from skmix.engine.structures import structure_of


def test_a_start_that_fails_in_the_pass_in_which_it_would_end_has_failed() -> None:
    """Its last change is small, and its covariance singular."""
    X = np.array([[0.0, 0.0], [0.1, 0.2], [-0.2, 0.1], [0.3, -0.1], [50.0, 50.0]])
    # The second kernel has a single row.
    start = Parameters(np.full((2, 1), 0.5), np.array([[0.0, 0.0], [50.0, 50.0]]), np.stack([np.eye(2)] * 2))
    both = Parameters(*(np.stack([a, a]) for a in (start.weights, start.means, start.covariances)))
    both.means[1, 1] = 0.1  # which makes the second start a sound one
    source, structure = open_source(X, None), structure_of("full")
    frame = measure(X, structure)
    options = Options(floor=0.0, tol=1e9, max_iter=1)
    found = em.fit(source, both, options, frame=frame, previous=-20.0)
    assert found.status.tolist() == [Status.FAILED, Status.CONVERGED]
    # It keeps what entered the pass.
    assert_allclose(found.parameters.means[0], start.means, atol=1e-12)


# ---------------------------------------------------------------- hierarchical weights


def by_urn(counts: FloatArray, concentration: FloatArray) -> float:
    """Return the log-probability of whole counts (K, L) of rows in some order, drawn from Pólya's urns."""
    total, terms = float(concentration.sum()), []
    for own in counts.T.astype(int):
        terms += [math.log(a + i) for a, n in zip(concentration, own, strict=True) for i in range(n)]
        terms += [-math.log(total + i) for i in range(own.sum())]
    return math.fsum(terms)


def drawn(
    random: np.random.Generator, n_classes: int, concentration: FloatArray, sizes: tuple[int, int]
) -> FloatArray:
    """Return counts (K, L) of classes whose weights come from one Dirichlet distribution."""
    weights = random.dirichlet(concentration, size=n_classes)
    return random.multinomial(random.integers(*sizes, size=n_classes), weights).T.astype(np.float64)


def hierarchical(**given: Any) -> Options:
    return Options(**{"weight_prior": "hierarchical", "tol": 0.0, **given})


CASES = [
    (2, np.array([0.3, 0.8])),
    (3, np.array([0.5, 2.0, 1.0])),
    (12, np.array([0.05, 0.2, 0.4, 1.0])),
    (40, np.array([40.0, 20.0, 60.0, 5.0])),
]


@pytest.mark.parametrize(("n_classes", "concentration"), CASES)
def test_the_concentration_learnt_is_the_likeliest(n_classes: int, concentration: FloatArray) -> None:
    counts = drawn(np.random.default_rng(2), n_classes, concentration, (3, 60))
    evidence = log_evidence(counts[None], concentration[None])
    assert_allclose(evidence, by_urn(counts, concentration), rtol=1e-12)
    found = np.ones((1, len(concentration)))
    values = [by_urn(counts, found[0])]
    for _ in range(80):
        found = learn_concentration(counts[None], found)
        values.append(by_urn(counts, found[0]))
    assert (np.diff(values) > -1e-9).all()

    def loss(logs: FloatArray) -> float:
        return -by_urn(counts, np.exp(logs))

    near = minimize(
        loss, np.log(concentration), method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-12}
    )
    best = minimize(loss, near.x, method="BFGS")
    assert values[-1] == pytest.approx(-best.fun, abs=1e-6)
    assert_allclose(np.log(found[0]), best.x, atol=2e-3)


# ---------------------------------------------------------------- fits


def test_concentrations_stay_within_limits() -> None:
    """Classes that are alike have an infinite likeliest sum: it grows by a tenth at a time, to a million."""
    alike, a = np.tile([[30.0], [60.0], [10.0], [0.0]], (1, 1, 5)), np.ones((1, 4))
    for _ in range(150):
        a = learn_concentration(alike, a)
    assert a.sum() == pytest.approx(1e6)
    assert_allclose(a[0] / a.sum(), [0.3, 0.6, 0.1, 0.0], atol=1e-6)
    assert (a > 0).all()
    once = learn_concentration(np.full((1, 2, 20), 500.0), np.array([[3.0, 3.0]]))
    assert once.sum() == pytest.approx(1.1 * 6.0, rel=1e-9)
    # Where classes differ, the sum may fall at once.
    differ = np.where(np.arange(20) % 2, [[500.0], [0.0]], [[0.0], [500.0]])[None]
    assert learn_concentration(differ, np.array([[50.0, 50.0]])).sum() < 50.0
