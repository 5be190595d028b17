"""The engine on JAX arrays on the CPU, against NumPy.

JAX compiles every operation for every shape, so that there are few tests here, of the same shapes.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("jax", reason="JAX, an optional library, is not installed")

import jax
from calls import fit

from skmix.engine import density, starts
from skmix.engine.compute.arrays import pick, replaced, to_numpy
from skmix.engine.covariances import structure_of
from skmix.engine.model import Options
from skmix.engine.sources.summary import measure

pytestmark = pytest.mark.slow
jax.config.update("jax_enable_x64", True)

RNG = np.random.default_rng(0)
# Clusters, one of them narrow and far away: its covariances reach the floor, and its moments want an origin.
MEMBERS = RNG.integers(0, 3, 300)
CENTRES = np.array([[0.0, 0.0, 0.0], [2.0, 3.0, -1.0], [1e6, -1e6, 5.0]])
X = CENTRES[MEMBERS] + RNG.normal(size=(300, 3)) * np.array([1.0, 2.0, 1e-3])[MEMBERS][:, None]
Y = (MEMBERS + RNG.integers(0, 2, 300)) % 2
WEIGHTS = RNG.uniform(0.5, 2.0, 300)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_fit_and_its_densities_are_those_of_numpy(covariance_type: str) -> None:
    structure = structure_of(covariance_type)
    found = starts.k_means_plus_plus(X, 2, 2, 3, measure(X, structure), structure, np.random.RandomState(0))
    found = replace(found, class_prior=np.full((2, 2), 0.5))
    codes = np.where(np.arange(300) % 3 == 0, -1, Y)
    options = Options(covariance_type=covariance_type, max_iter=6, tol=0.0)
    rows = jax.numpy.asarray(X)
    ours, theirs = (fit(each, codes, found, options, row_weights=WEIGHTS) for each in (X, rows))
    assert_allclose(theirs.log_likelihood, ours.log_likelihood, rtol=1e-9)
    assert_allclose(theirs.parameters.weights, ours.parameters.weights, atol=1e-9)
    assert_allclose(theirs.parameters.means, ours.parameters.means, rtol=1e-9, atol=1e-9)
    size = np.abs(ours.parameters.covariances).max()
    assert_allclose(theirs.parameters.covariances / size, ours.parameters.covariances / size, atol=1e-9)
    model = ours.parameters.take(0)
    got = density.class_log_likelihood(rows, model, covariance_type)
    assert isinstance(got, jax.Array)
    assert_allclose(to_numpy(got), density.class_log_likelihood(X, model, covariance_type), rtol=1e-9)


def test_picking_and_replacing() -> None:
    values = np.arange(12.0).reshape(4, 3)
    rows = jax.numpy.asarray(values)
    for index in ([2, 0], np.array([True, False, False, True]), slice(1, 3), 2, None):
        assert_array_equal(to_numpy(pick(rows, index)), values[index])
    got = to_numpy(replaced(rows, [3, 1], -rows[:2]))
    assert_array_equal(got, [values[0], -values[1], values[2], -values[0]])


SINGLE = """
import jax.numpy
from skmix.engine.covariances import structure_of
from skmix.engine.sources.summary import measure
measure(jax.numpy.ones((4, 2)), structure_of("full"))
"""


def test_float32_is_refused() -> None:
    # The setting belongs to the process.
    done = subprocess.run([sys.executable, "-c", SINGLE], capture_output=True, text=True, check=False)
    assert "which JAX disables by default" in done.stderr
    assert "jax.config.update('jax_enable_x64', True)" in done.stderr
