"""Cells of the matrix of studies: samples, fits, and what definitions say of proportions and comparisons.

Weights of samples come from plain EM under the kernels of the fit, errors from numerical derivatives of the
log-density, and p-values from SciPy. Nothing here calls skmix but `fitted`.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

import brute
import numpy as np
from oracles import as_full, as_structure
from scipy import stats
from scipy.special import digamma, logsumexp
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture

Array = brute.Array
Cell = dict[str, Any]

# The first value of each feature is its default.
FEATURES: dict[str, list[Any]] = {
    "kernels": ["apart", "overlapping"],
    "sizes": ["large", "small", "unequal"],
    "shares": ["varied", "alike"],  # alike: samples differ by chance alone
    "covariance": ["full", "tied", "diag", "spherical"],
    "tail": ["none", "t4"],
    "prior": ["none", "number", "hierarchical", "variational"],
    "shift": [False, True],
    "freeze": [False, True],
    "weighted": [False, True],
    "gaps": [False, True],
    "parts": ["kernels", "populations"],
    "asked": ["fit", "new", "loaded"],
}
# Refused by a fit; see `crossing`.
REFUSED = [
    {("tail", "t4"), ("prior", "variational")},
    {("tail", "t4"), ("shift", True)},
    {("prior", "variational"), ("shift", True)},
    {("prior", "variational"), ("freeze", True)},
]

# Names that sort in another order than the samples occur in.
NAMES = np.array(["s7", "s2", "s5", "s1", "s8", "s3", "s6", "s4"])
NEW_NAMES = np.array(["y", "x", "z", "w"])
SIZES = {
    "large": [250, 300, 200, 220, 300, 280, 240, 260],
    "small": [20, 60, 45, 30, 55, 25, 40, 50],
    "unequal": [30, 3000, 200, 60, 400, 45, 120, 800],
}
NEW_SIZES = {"large": [300, 250, 400, 350], "small": [25, 50, 40, 60], "unequal": [35, 900, 80, 30]}
MEANS = {
    "apart": np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]]),
    "overlapping": np.array([[0.0, 0.0], [2.2, 1.0], [0.0, 9.0], [9.0, 7.5]]),
}
COVARIANCES = np.array(
    [[[1.0, 0.3], [0.3, 1.2]], [[1.3, -0.4], [-0.4, 0.8]], [[0.8, 0.2], [0.2, 1.0]], [[1.1, 0.0], [0.0, 0.9]]]
)
SHARES, CONCENTRATION, STRENGTH, DEGREES = np.array([5.0, 4.0, 2.0, 3.0]), 3.0, 30.0, 4.0
# What is known about the samples: two samples of donor p in arm a and of donor r in arm b.
ABOUT = {
    "arm": list("aaaabbbb"),
    "donor": list("ppqrpqrr"),
    "batch": list("xyxyxxyy"),
    "age": [31.5, 48.0, 52.0, 29.0, 60.0, 44.0, 37.0, 58.0],
}
NEW_ABOUT = {"arm": list("aabb"), "donor": list("pqpq"), "batch": list("xyyx"), "age": [3.5, 2.0, 4.0, 9.0]}


def covering(seed: int = 0, tries: int = 8) -> list[Cell]:
    """Return cells in which all allowed pairs of values occur, by a greedy search."""
    chance, cells = random.Random(seed), []
    wanted = [
        {(a, x), (b, y)}
        for a, b in combinations(FEATURES, 2)
        for x, y in product(FEATURES[a], FEATURES[b])
        if {(a, x), (b, y)} not in REFUSED
    ]
    while wanted:
        found = []
        for _ in range(tries):
            cell = dict(sorted(chance.choice(wanted)))
            for name in chance.sample(list(FEATURES), len(FEATURES)):
                if name not in cell:
                    options = [value for value in FEATURES[name] if _is_allowed({**cell, name: value})]
                    gains = [_n_new({**cell, name: value}, wanted) + chance.random() for value in options]
                    cell[name] = options[int(np.argmax(gains))]
            found.append(cell)
        best = max(found, key=lambda cell: _n_new(cell, wanted))
        wanted = [pair for pair in wanted if not pair <= set(best.items())]
        cells.append({name: best[name] for name in FEATURES})
    return cells


def _is_allowed(cell: Cell) -> bool:
    return not any(pair <= set(cell.items()) for pair in REFUSED)


def _n_new(cell: Cell, wanted: list[Any]) -> int:
    return sum(pair <= set(cell.items()) for pair in wanted)


def name_of(cell: Cell) -> str:
    """Return what a cell has besides the defaults, as text."""
    changed = [f"{name}={value}" for name, value in cell.items() if value != FEATURES[name][0]]
    return ",".join(changed) or "defaults"


# ---------------------------------------------------------------- samples and fits


@dataclass(frozen=True)
class Cells:
    """Cells X (n, M) of samples y (n,), with weights w (n,) or None."""

    X: Array
    y: Array
    w: Array | None

    def take(self, index: Array) -> Cells:
        """Return some of the cells, in this order."""
        return Cells(self.X[index], self.y[index], None if self.w is None else self.w[index])

    def of(self, name: Any) -> tuple[Array, Array]:
        """Return the cells of a sample, and their weights."""
        own = self.y == name
        return self.X[own], np.ones(own.sum()) if self.w is None else self.w[own]


def make_cells(cell: Cell, *, new: bool = False) -> Cells:
    """Return the samples of a cell, or new ones; neighbours are of different samples."""
    chance = np.random.default_rng(7 if new else 3)
    names, sizes = (NEW_NAMES, NEW_SIZES) if new else (NAMES, SIZES)
    X, y = [], []
    for name, size in zip(names, sizes[cell["sizes"]], strict=True):
        shares = SHARES / SHARES.sum() if cell["shares"] == "alike" else chance.dirichlet(SHARES)
        kernels = chance.choice(4, size, p=shares)
        moved = MEANS[cell["kernels"]] + (0.3 * chance.normal(size=(4, 2)) if cell["shift"] else 0.0)
        noise = np.einsum(
            "nij,nj->ni", np.linalg.cholesky(COVARIANCES)[kernels], chance.normal(size=(size, 2))
        )
        X.append(moved[kernels] + noise)
        y.append(np.repeat(name, size))
    rows, labels = np.concatenate(X), np.concatenate(y)
    if cell["tail"] == "t4":
        rows[::15] += 3.0 * chance.normal(size=rows[::15].shape)
    if cell["gaps"]:
        some = np.flatnonzero(chance.random(len(rows)) < 0.2)
        rows[some, chance.integers(0, 2, len(some))] = np.nan
    w = chance.choice([0.0, 0.5, 1.0, 2.5], len(rows), p=[0.1, 0.3, 0.4, 0.2]) if cell["weighted"] else None
    return Cells(rows, labels, w).take(chance.permutation(len(rows)))


def start_of(cell: Cell) -> dict[str, Any]:
    """Return the kernels at which a fit starts, or that it keeps."""
    return {"means": MEANS[cell["kernels"]], "covariances": as_structure(COVARIANCES, cell["covariance"])}


def fitted(cell: Cell, data: Cells, start: dict[str, Any] | None = None) -> SharedKernelMixture:
    """Return the mixture of a cell, fitted until it moves no more."""
    priors = {
        "none": None,
        "number": CONCENTRATION,
        "hierarchical": "hierarchical",
        "variational": CONCENTRATION,
    }
    start = start or start_of(cell)
    model = SharedKernelMixture(
        len(start["means"]),
        init=start,
        covariance_type=cell["covariance"],
        freeze="kernels" if cell["freeze"] else None,
        tail="t" if cell["tail"] == "t4" else None,
        degrees=DEGREES if cell["tail"] == "t4" else None,
        inference="variational" if cell["prior"] == "variational" else "em",
        weight_prior=priors[cell["prior"]],
        group_shift=STRENGTH if cell["shift"] else None,
        tol=1e-9,
        max_iter=1500,
    )
    with quiet():
        return model.fit(data.X, data.y, data.w)


@contextmanager
def quiet() -> Iterator[None]:
    """Ignore what is warned of: passes that do not converge, and intervals that shifts make too narrow."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*have no intervals: with group_shift")
        yield


# ---------------------------------------------------------------- weights of samples


@dataclass(frozen=True)
class Sample:
    """A sample: its size, weights (K,) of kernels, the same as counted, and shifts (K, M) or None."""

    size: float
    weights: Array
    counted: Array
    shifts: Array | None


def kernels_of(model: Any, weights: Array, shifts: Array | None = None) -> brute.Model:
    """Return the kernels of a fit with the weights (K, L) and shifts (L, K, M) of samples."""
    full = as_full(model.covariances_, model.covariance_type_, *model.means_.shape)
    return brute.Model(
        weights, model.means_, full, degrees=getattr(model, "kernel_degrees_", None), shifts=shifts
    )


def log_densities(model: Any, X: Array, shifts: Array | None = None) -> Array:
    """Return the log-densities (n, K) of the kernels of a sample."""
    return brute.log_densities(X, kernels_of(model, model.weights_), shifts)


def added_by_prior(cell: Cell, model: Any) -> Array:
    """Return the cells (K,) that the prior adds to each sample."""
    number = {"none": 0.0, "number": CONCENTRATION - 1.0, "variational": CONCENTRATION}
    added = model.weight_prior_ if cell["prior"] == "hierarchical" else number[cell["prior"]]
    return np.array(np.broadcast_to(added, len(model.means_)), dtype=float)


def expected_sample(
    cell: Cell, model: Any, X: Array, w: Array, shifts: Array | None = None, *, new: bool = False
) -> Sample:
    """Return a sample of cells X (n, M) with weights (n,) under the kernels of a fit, by plain EM.

    The shifts (K, M) of a new sample are found as well. Weights with a prior that is learnt or variational
    are posterior means; expected logarithms of weights take the place of logarithms.
    """
    added, n_kernels = added_by_prior(cell, model), len(model.means_)
    counts, logs = np.full(n_kernels, w.sum() / n_kernels), None
    if new and cell["shift"]:
        shifts = np.zeros_like(model.means_)
    rows = brute.Rows(X, np.zeros(len(X), dtype=int), w)
    for _ in range(4000):
        total = counts + added
        with np.errstate(divide="ignore"):
            log_weights = np.log(total / total.sum())
        if cell["prior"] in ("hierarchical", "variational"):
            log_weights = digamma(total) - digamma(total.sum())
        if logs is None or (new and cell["shift"]):
            logs = log_densities(model, X, shifts)
        joint = logs + log_weights
        shares = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
        before, counts = counts, w @ shares
        if new and cell["shift"]:
            own = kernels_of(model, np.exp(log_weights)[:, None], shifts[None])  # type: ignore[index]
            shifts = brute.shifts_after(brute.expectations(rows, own), model.means_, STRENGTH)[0]
        if np.abs(counts - before).max() < (1e-6 if new else 1e-8) * w.sum():
            break
    weights = (counts + added) / (counts + added).sum()
    return Sample(
        w.sum(), weights, counts / counts.sum() if cell["prior"] == "hierarchical" else weights, shifts
    )


def posteriors(model: Any, X: Array, samples: list[Sample]) -> Array:
    """Return the probabilities (n, K) of kernels for cells of unknown sample: all samples together."""
    sizes = np.array([each.size for each in samples])
    joint = sum(
        share * np.exp(log_densities(model, X, each.shifts)) * each.weights
        for share, each in zip(sizes / sizes.sum(), samples, strict=True)
    )
    return np.asarray(joint / joint.sum(axis=1, keepdims=True))


# ---------------------------------------------------------------- errors


class Errors:
    """Covariances of the weights of samples, from the Fisher information about weights and kernels.

    Expectations are means over draws of all kernels, with numerical derivatives of the log-density.
    """

    n_each = 4000

    def __init__(self, cell: Cell, model: Any, samples: list[Sample]) -> None:
        self.cell, self.model = cell, model
        self.kernels = kernels_of(model, model.weights_)
        n_kernels, chance = len(model.means_), np.random.default_rng(1)
        z = chance.normal(size=(n_kernels, self.n_each, 2))
        if self.kernels.degrees is not None:
            scale = chance.chisquare(self.kernels.degrees[:, None], size=(n_kernels, self.n_each))
            z /= np.sqrt(scale / self.kernels.degrees[:, None])[..., None]
        roots = np.linalg.cholesky(self.kernels.covariances)
        self.X = (self.kernels.means[:, None] + np.einsum("kij,knj->kni", roots, z)).reshape(-1, 2)
        # A prior that is learnt is left out.
        self.prior = 0.0 if cell["prior"] == "hierarchical" else added_by_prior(cell, model).sum()
        self.of_kernels = None
        if not cell["freeze"]:
            total = sum(self._parts(each, kernels=True)[1] for each in samples)
            # Cells far from the others tell nothing about a kernel that has none.
            self.of_kernels = np.linalg.pinv(total)  # type: ignore[arg-type]

    def variances(self, sample: Sample, members: Array) -> Array:
        """Return the variances (G,) of the proportions of populations, given members (K, G)."""
        covariance, _, cross = self._parts(sample, kernels=True)
        found = covariance.copy()
        if self.of_kernels is not None:
            moved = covariance @ cross
            found += moved @ self.of_kernels @ moved.T
        if sample.shifts is not None:
            alone, precision, cross = self._parts(sample, kernels=False)
            n_kernels = len(self.model.means_)
            for k in range(n_kernels):
                place = slice(2 * k, 2 * k + 2)
                precision[place, place] += STRENGTH * np.linalg.inv(self.kernels.covariances[k])
            moved = alone @ cross
            found += moved @ np.linalg.inv(precision) @ moved.T
        return np.asarray(np.einsum("kg,kl,lg->g", members, found, members))

    def _parts(self, sample: Sample, *, kernels: bool) -> tuple[Array, Array, Array]:
        """Return the covariance V (K, K) of weights, C_θθ − CᵀVC, and C (K, P) of one sample.

        θ are means and covariances or, without `kernels`, the means alone.
        """
        X = self.X
        if sample.shifts is not None:
            X = X + np.repeat(sample.shifts, self.n_each, axis=0)
        logs = brute.log_densities(X, self.kernels, sample.shifts)
        f = np.exp(logs)
        # After adding one cell, spread over all kernels.
        weights = (sample.size * sample.counted + 1.0 / len(f.T)) / (sample.size + 1.0)
        p, q = f @ weights, f.mean(axis=1)
        of_weights = f / p[:, None]
        of_kernels = self._slopes(X, logs, sample.shifts, kernels=kernels) @ self._tie(kernels=kernels)
        # Chain rule: ∂ log p = Σ_k π_k f_k / p ∂ log f_k, whose derivatives by other kernels are zero.
        of_kernels = np.einsum("nk,nkp->np", of_weights * weights, of_kernels)
        size = sample.size * (p / q)[:, None] / len(X)
        J = of_weights.T @ (size * of_weights)
        J[np.diag_indices_from(J)] += self.prior / weights
        inverse = np.linalg.inv(J)
        sums = inverse.sum(axis=1)
        covariance = inverse - np.outer(sums, sums) / sums.sum()
        cross = of_weights.T @ (size * of_kernels)
        return covariance, of_kernels.T @ (size * of_kernels) - cross.T @ covariance @ cross, cross

    def _slopes(self, X: Array, logs: Array, shifts: Array | None, *, kernels: bool) -> Array:
        """Return the derivatives (n, K, K·S) of log f_k by the parameters of all kernels."""
        n_kernels, step = len(self.kernels.means), 1e-5
        kind = self.cell["covariance"] if kernels else "none"
        eye = np.eye(2)
        moves = [np.outer(eye[0], eye[0]), np.outer(eye[1], eye[1]), 1.0 - eye]
        moves = {"none": [], "diag": moves[:2], "spherical": [eye]}.get(kind, moves)
        n_each = 2 + len(moves)
        found = np.zeros((len(X), n_kernels, n_kernels * n_each))
        for s in range(n_each):
            values = []
            for sign in (1.0, -1.0):
                moved = self.kernels
                if s < 2:
                    moved = replace(moved, means=moved.means + sign * step * eye[s])
                else:
                    moved = replace(moved, covariances=moved.covariances + sign * step * moves[s - 2])
                values.append(brute.log_densities(X, moved, shifts))
            for k in range(n_kernels):
                found[:, k, k * n_each + s] = (values[0] - values[1])[:, k] / (2.0 * step)
        return found

    def _tie(self, *, kernels: bool) -> Array:
        """Return the matrix (K·S, P) from parameters to those of each kernel."""
        n_kernels = len(self.kernels.means)
        n_each = {"diag": 4, "spherical": 3}.get(self.cell["covariance"], 5) if kernels else 2
        if self.cell["covariance"] != "tied" or not kernels:
            return np.eye(n_kernels * n_each)
        own, shared = np.split(np.eye(n_each), [2], axis=1)
        return np.hstack([np.kron(np.eye(n_kernels), own), np.tile(shared, (n_kernels, 1))])


def interval(
    share: Array, variance: Array, size: float, prior: float, *, posterior: bool
) -> tuple[Array, Array]:
    """Return 95 % limits (G,) of proportions with these variances (G,).

    They are Jeffreys' limits for cells of which a share is misclassified: the share that gives the variance.
    A prior counts as cells; a posterior mean needs none of Jeffreys' besides.
    """
    n = size + prior
    spread = np.maximum(n * variance - share * (1.0 - share), 0.0)
    scale = (1.0 + 4.0 * spread) ** -0.5
    wrong = 0.5 * (1.0 - scale)
    counted = n * (wrong + scale * share)
    jeffreys = 0.0 if posterior else 0.5
    beta = stats.beta(np.maximum(counted + jeffreys, 1e-12), np.maximum(n - counted + jeffreys, 1e-12))
    lower, upper = ((beta.ppf(level) - wrong) / scale for level in (0.025, 0.975))
    return np.minimum(np.maximum(lower, 0.0), share), np.maximum(np.minimum(upper, 1.0), share)


# ---------------------------------------------------------------- comparisons


def compared(
    shares: Array, variances: Array, first: Array, *, pair: Any = None, covariate: Any = None
) -> dict[str, Array]:
    """Return the columns of a comparison of samples with shares (L, G) and variances (L, G) of these."""
    if pair is None and covariate is None:
        sides = []
        for side in (first, ~first):
            n = side.sum()
            variance = np.maximum(
                shares[side].var(axis=0, ddof=min(1, n - 1)), 0.5 * variances[side].mean(axis=0)
            )
            sides.append((shares[side].mean(axis=0), variances[side][0] if n == 1 else variance / n, n))
        (a, v, n), (b, u, m) = sides
        inverse = (v**2 / (n - 1) if n > 1 else 0.0) + (u**2 / (m - 1) if m > 1 else 0.0)
        with np.errstate(divide="ignore"):
            t = stats.t((v + u) ** 2 / inverse)
        reach = t.ppf(0.975) * np.sqrt(v + u)
        limits = np.clip([a - b - reach, a - b + reach], -1.0, 1.0)
        p_values = 2.0 * t.sf(np.abs(a - b) / np.sqrt(v + u))
        return {
            "a": a,
            "b": b,
            "difference": a - b,
            "lower": limits[0],
            "upper": limits[1],
            "p_value": p_values,
        }
    if pair is not None:
        keys = [(key, side) for key in sorted(set(pair)) for side in (True, False)]
        lines = [np.flatnonzero((np.array(pair) == key) & (first == side)) for key, side in keys]
        shares, variances = (
            np.array([own[line].mean(axis=0) / (len(line) if squared else 1) for line in lines])
            for own, squared in ((shares, False), (variances, True))
        )
        first, covariate = np.array([side for _, side in keys]), [key for key, _ in keys]
    if isinstance(covariate[0], str):
        columns = np.array([[value == other for other in sorted(set(covariate))[1:]] for value in covariate])
    else:
        columns = np.array(covariate)[:, None]
    design = np.column_stack([first, np.ones(len(first)), columns]).astype(float)
    angles = np.arcsin(np.sqrt(np.clip(shares, 0.0, 1.0)))
    effects = np.linalg.lstsq(design, angles, rcond=None)[0]
    degrees = len(design) - design.shape[1]
    mean = shares.mean(axis=0)
    # The variance of arcsin √p is that of p over 4 p (1 − p).
    least = 0.5 * variances.mean(axis=0) / np.maximum(4.0 * mean * (1.0 - mean), 1e-300)
    variance = np.maximum(((angles - design @ effects) ** 2).sum(axis=0) / degrees, least)
    deviation = np.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0])
    t = stats.t(degrees)
    at = [np.append([side, 1.0], columns.mean(axis=0)) @ effects for side in (1.0, 0.0)]
    a, b = np.sin(at) ** 2
    middle, change, reach = np.add(*at) / 2.0, effects[0], t.ppf(0.975) * deviation
    lower, upper = (
        np.sin(2.0 * middle) * np.sin(np.clip(change + sign * reach, -np.pi / 2, np.pi / 2))
        for sign in (-1.0, 1.0)
    )
    p_values = 2.0 * t.sf(np.abs(change) / deviation)
    return {"a": a, "b": b, "difference": a - b, "lower": lower, "upper": upper, "p_value": p_values}


def adjusted(p_values: Array) -> Array:
    """Return p-values (L,) adjusted by Holm's method."""
    order, n = np.argsort(p_values, kind="stable"), len(p_values)
    found = np.empty(n)
    highest = 0.0
    for rank, place in enumerate(order):
        highest = max(highest, (n - rank) * p_values[place])
        found[place] = min(1.0, highest)
    return found
