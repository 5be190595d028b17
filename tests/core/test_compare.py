"""Two Gaussians compared with one by the core, and by NumPy: `starts/exchange.py` has the definition."""

from __future__ import annotations

import numpy as np
import pytest
from definitions import each_set
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal

from skmix.engine.starts import exchange
from skmix.engine.starts.exchange import Comparison, Exchange
from skmix.engine.structures import structure_of
from skmix.engine.threads import workers

TYPES = ["full", "tied", "diag", "spherical"]


def rows_and_shares(n_features: int, n_kernels: int, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of clusters and responsibilities of kernels that do not fit them."""
    random = np.random.default_rng([n_features, n_kernels, n_rows])
    centres = 3.0 * random.normal(size=(n_kernels, n_features))
    x = centres[random.integers(n_kernels, size=n_rows)] + random.normal(size=(n_rows, n_features))
    distances = np.square(x[:, None] - x[random.choice(n_rows, n_kernels)]).sum(axis=-1) / n_features
    shares = np.exp(0.5 * (distances.min(axis=1, keepdims=True) - distances))
    return x, np.ascontiguousarray((shares / shares.sum(axis=1, keepdims=True)).T)


def assert_same(one: Comparison, other: Comparison, n_steps: int) -> None:
    """Compare what is defined after so many steps."""
    assert_allclose(one.gain, other.gain, rtol=1e-7, atol=1e-7)
    for name in ("whole", "first", "second") if n_steps else ("whole",):
        gaussians = [vars(getattr(each, name)) for each in (one, other)]
        for key in gaussians[0]:
            values = [each[key] for each in gaussians]
            assert values[0].shape == values[1].shape
            assert_allclose(*values, rtol=1e-7, atol=1e-9, err_msg=f"{name}.{key}")


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("n_features", [1, 2, 3, 7, 8, 9, 17, 33])
@pytest.mark.parametrize(("n_kernels", "n_rows"), [(3, 40), (6, 700)])
def test_comparisons_are_those_of_numpy(
    covariance_type: str,
    pooled: bool,
    n_features: int,
    n_kernels: int,
    n_rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, shares = rows_and_shares(n_features, n_kernels, n_rows)
    structure = structure_of(covariance_type)
    kernels = np.arange(n_kernels)
    pairs = np.stack([kernels, np.roll(kernels, 1)], axis=1)
    with monkeypatch.context() as patch:
        patch.setattr(exchange, "core", lambda: None)
        reference = Exchange(x, shares, structure, pooled=pooled)
    for _ in each_set():
        in_core = Exchange(x, shares, structure, pooled=pooled)
        for key, values in vars(reference._whole).items():
            assert_allclose(getattr(in_core._whole, key), values, rtol=1e-8, atol=1e-10)
        for groups, n_steps in ((kernels[:, None], 1), (kernels[:, None], 3), (pairs, 1), (pairs[:1], 2)):
            one, other = (each._compare(groups, n_steps) for each in (in_core, reference))
            assert_same(one, other, n_steps)


def test_threads_do_not_change_a_comparison() -> None:
    x, shares = rows_and_shares(20, 12, 6000)
    results = []
    for n_threads in (1, 3):
        with workers(n_threads):
            exchange_of_all = Exchange(x, shares, structure_of("full"), pooled=False)
            results.append(exchange_of_all._compare(np.arange(12)[:, None], 3))
    assert_array_equal(results[0].gain, results[1].gain)
    assert_array_equal(results[0].first.covariances, results[1].first.covariances)


def test_the_gain_is_that_of_log_likelihoods() -> None:
    """The mixture of the two, less the Gaussian of all rows: each row counts by its responsibility."""
    x, shares = rows_and_shares(3, 4, 300)
    shares = (shares == shares.max(axis=0)).astype(float)
    # All rows of a kernel are looked at.
    shares[:, 80:] *= np.array([0.0, 1.0, 0.0, 0.0])[:, None]
    compared = Exchange(x, shares, structure_of("full"), pooled=False)._compare(np.array([[0]]), 1)
    rows, whole = x[shares[0] > 0], compared.whole.take(0)
    assert_allclose(whole.mass, len(rows))
    assert_allclose(whole.means, rows.mean(axis=0))
    two = [compared.first.take(0), compared.second.take(0)]
    densities = [multivariate_normal(each.means, each.covariances).pdf(rows) for each in (whole, *two)]
    mixture = sum(each.mass / whole.mass * density for each, density in zip(two, densities[1:], strict=True))
    assert_allclose(compared.gain[0], np.log(mixture / densities[0]).sum(), rtol=1e-9)


def test_groups_without_rows_gain_nothing() -> None:
    x, shares = rows_and_shares(3, 4, 300)
    shares[2:] = 0.0
    compared = Exchange(x, shares, structure_of("full"), pooled=False)._compare(np.array([[2], [3]]), 2)
    assert_array_equal(compared.whole.mass, 0.0)
    assert (compared.gain <= 1e-9).all()
    assert np.isfinite(compared.whole.covariances).all()
