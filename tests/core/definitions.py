"""What the core computes, by its definition in plain NumPy, kernel by kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix._core import compiled, instructions

Array = NDArray[Any]

# Squared distances are at most this.
FARTHEST_SQUARED = 1e300


def sets_here() -> list[str]:
    """Return the instruction sets that this processor and this build have, the best first."""
    names = []
    for name in ("avx512", "avx2", "neon", "baseline"):
        try:
            names.append(compiled.use(name))
        except ValueError:
            continue
    compiled.use(instructions if instructions in names else None)
    return names


SETS = sets_here()


def each_set() -> Iterator[str]:
    """Use one instruction set after the other."""
    for name in SETS:
        compiled.use(name)
        yield name


@dataclass(frozen=True)
class Problem:
    """Rows (N, M), and R starts with K kernels and C classes, in the core's terms."""

    X: Array
    codes: Array | None
    weights: Array | None
    scale: Array  # (M,)
    shift: Array  # (M,)
    is_product: bool
    isotropic: bool
    means: Array  # (R, K, M)
    whiteners: Array  # (R, K, M, M), (R, 1, M, M) or (R, K, M)
    constants: Array  # (R, K)
    log_weights: Array  # (R, K, C)
    degrees: Array | None = None  # (R, K)
    limit: float = 1e100

    @property
    def x(self) -> Array:
        """The rows in their frame."""
        x = self.X.astype(np.float64) * self.scale - self.shift
        return np.clip(x, -self.limit, self.limit)

    @property
    def row_weights(self) -> Array:
        """Weights (N,) of the rows."""
        return np.ones(len(self.X)) if self.weights is None else self.weights

    @property
    def row_codes(self) -> Array:
        """Classes (N,) of the rows."""
        return np.zeros(len(self.X), dtype=np.int64) if self.codes is None else self.codes

    def rows(self) -> Any:
        """Return the rows as the core takes them."""
        n_classes = self.log_weights.shape[2]
        return compiled.Rows(self.X, self.codes, self.weights, self.scale, self.shift, self.limit, n_classes)

    def kernels(self) -> Any:
        """Return the kernels as the core takes them."""
        arrays = self.means, self.whiteners, self.constants, self.log_weights, self.degrees
        return compiled.Kernels(self.is_product, self.isotropic, *arrays)


STRUCTURES = ["full", "tied", "tied products", "diag", "diag products", "spherical", "spherical products"]


def make_problem(
    structure: str,
    n_features: int,
    *,
    n_rows: int = 300,
    n_kernels: int = 3,
    n_starts: int = 1,
    n_classes: int = 1,
    weighted: bool = False,
    t: bool = False,
    dtype: type = np.float64,
    far: float = 0.0,
    seed: int = 0,
) -> Problem:
    """Return rows around the kernels of the first start."""
    random = np.random.default_rng([seed, n_features, n_kernels, n_rows])
    name, _, form = structure.partition(" ")
    scale, shift = random.uniform(0.5, 2.0, size=n_features), random.normal(size=n_features)
    means = 2.0 * random.normal(size=(n_starts, n_kernels, n_features)) + far
    x = random.normal(size=(n_rows, n_features)) + means[0, random.integers(n_kernels, size=n_rows)]
    if name in ("full", "tied"):
        size = (n_starts, n_kernels if name == "full" else 1, n_features, n_features)
        whiteners = np.tril(random.normal(size=size), -1) / n_features
        diagonal = np.arange(n_features)
        whiteners[..., diagonal, diagonal] = random.uniform(0.5, 1.5, size=size[:3])
    else:
        size = (n_starts, n_kernels, n_features if name == "diag" else 1)
        whiteners = random.uniform(0.5, 1.5, size=size) * np.ones(n_features)
    log_weights = np.log(random.dirichlet(np.ones(n_kernels), size=(n_starts, n_classes))).swapaxes(1, 2)
    return Problem(
        ((x + shift) / scale).astype(dtype),
        random.integers(n_classes, size=n_rows) if n_classes > 1 else None,
        random.uniform(0.2, 3.0, size=n_rows) if weighted else None,
        scale,
        shift,
        form == "products",
        name == "spherical",
        means,
        np.ascontiguousarray(whiteners),
        random.normal(size=(n_starts, n_kernels)),
        np.ascontiguousarray(log_weights),
        random.uniform(1.0, 30.0, size=(n_starts, n_kernels)) if t else None,
    )


# ---------------------------------------------------------------- passes


def densities(problem: Problem, start: int) -> tuple[Array, Array, Array]:
    """Return log-densities (K, N) of a start's kernels, E[u] (K, N) and log(1 + d² / ν) (K, N)."""
    x, n_features = problem.x, problem.X.shape[1]
    values = np.empty((problem.means.shape[1], len(x)))
    precisions, log_ratios = np.ones_like(values), np.zeros_like(values)
    for k, mean in enumerate(problem.means[start]):
        whitener = problem.whiteners[start, k % problem.whiteners.shape[1]]
        if whitener.ndim == 2:
            white = np.einsum("ij,nj->ni", np.tril(whitener), x - mean)
        else:
            white = (x - mean) * whitener
        squared = np.minimum(np.square(white).sum(axis=1), FARTHEST_SQUARED)
        if problem.degrees is None:
            values[k] = problem.constants[start, k] - 0.5 * squared
            continue
        degrees = problem.degrees[start, k]
        log_ratios[k] = np.log1p(squared / degrees)
        values[k] = problem.constants[start, k] - 0.5 * (degrees + n_features) * log_ratios[k]
        precisions[k] = (degrees + n_features) / (degrees + squared)
    return values, precisions, log_ratios


def mixed(values: Array, weights: Array) -> Array:
    """Return log-densities (N, L) of mixtures with weights (K, L) of kernels with log-densities (K, N)."""
    with np.errstate(divide="ignore"):
        terms = values[:, :, None] + np.log(weights)[:, None]
    highest = terms.max(axis=0)
    safe = np.where(np.isfinite(highest), highest, 0.0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(terms - safe).sum(axis=0)) + safe


def pairs(n_features: int) -> tuple[Array, Array]:
    """Return the features of pairs (S,): j and j + d mod M, for d = 0, 1, ..."""
    place = np.arange(n_features * (n_features + 1) // 2)
    return place % n_features, (place % n_features + place // n_features) % n_features


def e_step(problem: Problem, origins: Array | None) -> tuple[Array, ...]:
    """Return the six arrays of the E-step."""
    (n_starts, n_kernels, n_features), n_classes = problem.means.shape, problem.log_weights.shape[2]
    is_matrix = problem.whiteners.ndim == 4 and not problem.is_product
    first_of, second_of = pairs(n_features) if is_matrix else (np.arange(n_features),) * 2
    likelihood, mass = np.zeros((n_starts, n_classes)), np.zeros((n_starts, n_kernels, n_classes))
    first, second = np.zeros(problem.means.shape), np.zeros((n_starts, n_kernels, len(first_of)))
    n_tails = 0 if problem.degrees is None else n_kernels
    tails = np.zeros((2, n_starts, n_tails))
    x, codes, weights = problem.x, problem.row_codes, problem.row_weights
    for r in range(n_starts):
        values, precisions, log_ratios = densities(problem, r)
        joint = values + problem.log_weights[r][:, codes]
        highest = joint.max(axis=0)
        shares = np.exp(joint - highest)
        totals = shares.sum(axis=0)
        shares *= weights / totals
        is_member = codes == np.arange(n_classes)[:, None]
        logs = weights * (highest + np.log(totals))
        likelihood[r] = [logs[members].sum() for members in is_member]
        if origins is None:
            continue
        mass[r] = np.stack([shares[:, members].sum(axis=1) for members in is_member], axis=1)
        for k in range(n_kernels):
            weighted = shares[k] * precisions[k]
            ahead = x - origins[r, k]
            first[r, k] = weighted @ ahead
            second[r, k] = (weighted[:, None] * ahead[:, first_of] * ahead[:, second_of]).sum(axis=0)
            if n_tails:
                tails[:, r, k] = weighted.sum(), (shares[k] * log_ratios[k]).sum()
    return likelihood, mass, first, second, *tails


def with_a_meaning(problem: Problem, second: Array) -> Array:
    """Return the second moments that products define: none of tied kernels, one sum of spherical ones."""
    if problem.is_product and problem.whiteners.ndim == 4:
        return np.zeros(0)
    return second.sum(axis=-1) if problem.is_product and problem.isotropic else second


def done(job: Any, n_threads: int = 1) -> tuple[Array, ...]:
    """Do a job of the core in threads; return its results."""
    if n_threads == 1:
        job.work()
    else:
        with ThreadPoolExecutor(n_threads) as pool:
            for future in [pool.submit(job.work) for _ in range(n_threads)]:
                future.result()
    results: tuple[Array, ...] = job.finish()
    return results


# ---------------------------------------------------------------- rows with gaps


@dataclass(frozen=True)
class Gaps:
    """Rows with gaps by pattern, F covariances, and the means of G kernels of each."""

    x: Array  # (N, M): anything at gaps
    first: Array  # (P + 1,)
    orders: Array  # (P, M)
    n_known: Array  # (P,)
    covariances: Array  # (F, M, M)
    means: Array  # (F, G, M)

    def completion(self, *, with_moments: bool = True) -> Any:
        """Return the rows completed by the core."""
        return compiled.complete(*vars(self).values(), with_moments)


def make_gaps(
    n_features: int, n_covariances: int, n_means: int, *, n_patterns: int = 5, seed: int = 0
) -> Gaps:
    """Return rows of some patterns, also of one without gaps and one without a value."""
    random = np.random.default_rng([seed, n_features, n_covariances])
    n_known = random.integers(n_features + 1, size=n_patterns)
    n_known[:2] = [0, n_features][:n_patterns]
    first = np.concatenate([[0], np.cumsum(random.integers(0, 7, size=n_patterns))])
    orders = np.argsort(random.random((n_patterns, n_features)), axis=1)
    roots = random.normal(size=(n_covariances, n_features, n_features + 3))
    return Gaps(
        random.normal(size=(first[-1], n_features)),
        first,
        orders,
        n_known,
        roots @ roots.swapaxes(1, 2) / (n_features + 3),
        random.normal(size=(n_covariances, n_means, n_features)),
    )


def complete(gaps: Gaps, mass: Array) -> tuple[Array, ...]:
    """Return distances, log-determinants, expected differences, and the covariances that remain of a mass."""
    (n_rows, n_features), (n_covariances, n_means, _) = gaps.x.shape, gaps.means.shape
    distances = np.zeros((n_covariances, n_means, n_rows))
    log_determinants = np.zeros((n_covariances, len(gaps.n_known)))
    ahead, remaining = np.zeros((*distances.shape, n_features)), np.zeros_like(gaps.covariances)
    for f, P in enumerate(gaps.covariances):
        for p, (order, n) in enumerate(zip(gaps.orders, gaps.n_known, strict=True)):
            known, rest = order[:n], order[n:]
            inverse = np.linalg.inv(P[np.ix_(known, known)])
            slopes = P[np.ix_(rest, known)] @ inverse
            log_determinants[f, p] = np.linalg.slogdet(P[np.ix_(known, known)])[1]
            remaining[f][np.ix_(rest, rest)] += mass[f, p] * (
                P[np.ix_(rest, rest)] - slopes @ P[np.ix_(known, rest)]
            )
            for i in range(*gaps.first[p : p + 2]):
                for g in range(n_means):
                    difference = gaps.x[i, known] - gaps.means[f, g, known]
                    distances[f, g, i] = difference @ inverse @ difference
                    ahead[f, g, i, known], ahead[f, g, i, rest] = difference, slopes @ difference
    return distances, log_determinants, ahead, remaining


def assert_close(result: Array, expected: Array, digits: float = 1e-11, name: str = "") -> None:
    """Compare to some digits of the largest number."""
    assert result.shape == expected.shape, name
    largest = np.abs(expected).max(initial=0.0)
    assert math.isfinite(largest), name
    np.testing.assert_allclose(result, expected, rtol=0.0, atol=digits * largest, err_msg=name)
