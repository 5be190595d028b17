"""Features of classifiers: gaps filled, powers and projections."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.utils import check_random_state
from sklearn.utils.extmath import svd_flip

from ...engine.compute.blocks import Block
from ...engine.model import FloatArray, IntArray
from ..mixture import SharedKernelMixture
from ._base import codes_of

# Singular values below this share of the largest do not determine a direction.
_LEAST_SINGULAR = 0.05
# Missing values are filled roughly, in few passes: only settings are chosen with the result.
_PASSES_TO_FILL = 20
_TOLERANCE_TO_FILL = 1e-2
# Share of the variance that principal components keep.
_VARIANCE_KEPT = 0.95
# Up to this many features they are not reduced: kernels can find their directions.
_FEW_FEATURES = 12
# Above this many they always are: full covariances would take too long.
_TOO_MANY_FEATURES = 100
# Discriminants take a time that grows with the cube of the features.
_MOST_FOR_DISCRIMINANTS = 500
# Standardised values are clipped to this magnitude, so that powers of them stay finite.
_FARTHEST = 1e8
# The powers that are tried: closer ones make no difference to kernels.
_POWERS = np.linspace(-4.0, 6.0, 41)
# Rows that powers are chosen with: more do not change the choice.
_ROWS_FOR_POWERS = 2000
# Knots of the piecewise linear map from values to normal scores.
_N_KNOTS = 32
# The score of the least and of the largest value.
_FARTHEST_SCORE = 3.0
# A feature whose deviation is below this share of its mean is constant.
_LEAST_DEVIATION = 1e-12
# A power must be more likely than one by this, in nats a row.
_LEAST_GAIN = 1e-3
# The least variance or weight that is divided by.
_TINY = np.finfo(np.float64).tiny
# A sample of the rows has at least this many rows of each class, or all of them.
_FEWEST_ROWS_OF_A_CLASS = 100


def filler(X: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that fills missing values by their mean given the others, under one Gaussian.

    The Gaussian is fitted to X (n, M). Features without any value in X become constant.
    """
    if not np.isnan(X).any():
        return lambda rows: rows
    known = np.flatnonzero(~np.isnan(X).all(axis=0))
    gaussian = SharedKernelMixture(1, max_iter=_PASSES_TO_FILL, tol=_TOLERANCE_TO_FILL, random_state=seed)
    gaussian.fit(X[:, known])

    def fill(rows: np.ndarray) -> np.ndarray:
        found = np.zeros(rows.shape)
        found[:, known] = gaussian.impute(rows[:, known])
        return found

    return fill


class FeatureMap(NamedTuple):
    """Features as kernels see them: standardised, transformed by a power or by rank, and projected.

    Values z = (x − shift) / scale are transformed by Yeo and Johnson's powers, of which one changes nothing,
    then by a curve, and then to (t − offset) A. Without curves or a matrix there is no such step.
    """

    shift: FloatArray  # (M,)
    scale: FloatArray  # (M,)
    powers: FloatArray  # (M,)
    curves: FloatArray | None  # (2, M, k): ascending knots of each curve, and its values there
    offset: FloatArray | None  # (M,)
    matrix: FloatArray | None  # (M, q)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return the features (n, q) of rows X (n, M).

        Missing values stay missing where there is no projection. With one, a row with missing values has the
        features that fit its other values best, by least squares; a row without any value has none.
        """
        with np.errstate(over="ignore"):
            # Overflowing values are clipped.
            features = along(self.curves, yeo_johnson((X - self.shift) / self.scale, self.powers))
        if self.matrix is None or self.offset is None:
            return features
        centred = features - self.offset
        reduced: np.ndarray = centred @ self.matrix
        with_gaps = np.flatnonzero(np.isnan(reduced).any(axis=1))
        back = np.linalg.pinv(self.matrix).T if len(with_gaps) else self.matrix
        for row in with_gaps:
            seen = ~np.isnan(centred[row])
            if seen.any():
                # Directions that the other values hardly determine stay at the mean.
                reduced[row] = np.linalg.lstsq(back[seen], centred[row, seen], rcond=_LEAST_SINGULAR)[0]
        return reduced


def yeo_johnson(z: np.ndarray, powers: FloatArray) -> np.ndarray:
    """Return standardised values z (n, M) transformed by powers (M,); a power of one changes nothing."""
    z = np.clip(z, -_FARTHEST, _FARTHEST)
    # Of positive values the power is λ, of the size of negative ones 2 − λ; of zero it is the logarithm.
    exponent = np.where(z >= 0.0, powers, 2.0 - powers)
    logs = np.log1p(np.abs(z))
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.where(exponent == 0.0, logs, np.expm1(exponent * logs) / exponent)
    return np.where(exponent == 1.0, z, np.copysign(size, z))


def likeliest_powers(z: np.ndarray, weights: FloatArray) -> FloatArray:
    """Return the powers (M,) after which standardised values z (n, M) are most likely under a Gaussian.

    They are multiples of 1/4.
    """
    step = -(-len(z) // _ROWS_FOR_POWERS)
    z, weights = z[::step], weights[::step]
    slopes = np.average(np.sign(z) * np.log1p(np.abs(z)), axis=0, weights=weights)

    def log_variance(power: float) -> FloatArray:
        values = yeo_johnson(z, np.full(z.shape[1], power))
        values = values - np.average(values, axis=0, weights=weights)
        return np.log(np.average(values**2, axis=0, weights=weights))

    with np.errstate(divide="ignore"):
        likelihoods = [(power - 1.0) * slopes - 0.5 * log_variance(power) for power in _POWERS]
    # A feature of two values is as likely after any power.
    likelihoods[_POWERS.tolist().index(1.0)] += _LEAST_GAIN
    return _POWERS[np.argmax(np.nan_to_num(likelihoods, nan=-np.inf, posinf=-np.inf), axis=0)]


def along(curves: FloatArray | None, z: np.ndarray) -> np.ndarray:
    """Return values z (n, M) along piecewise linear curves (2, M, k), beyond their ends with slope one."""
    if curves is None:
        return z
    pairs = zip(z.T, curves.swapaxes(0, 1), strict=True)
    within = np.column_stack([np.interp(column, *curve) for column, curve in pairs])
    return within + (z - np.clip(z, curves[0, :, 0], curves[0, :, -1]))


def normal_scores(z: np.ndarray, weights: FloatArray) -> FloatArray:
    """Return the curves (2, M, k) that make features of rows z (n, M) with weights (n,) Gaussian.

    A value becomes the quantile of the standard normal distribution at the share of rows below it, rows of
    the same value counted by half. The least and the largest value of a feature are placed at ± 3: often they
    mean something else, such as none or all.
    """
    curves = np.empty((2, z.shape[1], _N_KNOTS))
    for column, curve in zip(z.T, curves.swapaxes(0, 1), strict=True):
        values, place = np.unique(column, return_inverse=True)
        masses = np.bincount(place, weights)
        scores = np.clip(
            ndtri((np.cumsum(masses) - 0.5 * masses) / masses.sum()), -_FARTHEST_SCORE, _FARTHEST_SCORE
        )
        if len(values) > 1:
            scores[[0, -1]] = -_FARTHEST_SCORE, _FARTHEST_SCORE
        wanted = np.linspace(scores[0], scores[-1], _N_KNOTS)
        kept = np.arange(len(values)) if len(values) <= _N_KNOTS else np.searchsorted(scores, wanted)
        # A curve with fewer knots has its last one several times.
        kept = np.append(kept, np.full(_N_KNOTS - len(kept), len(values) - 1))
        kept[-1] = len(values) - 1
        curve[:] = values[kept], scores[kept]
    return curves


def transforms(X: np.ndarray, n_classes: int) -> list[tuple[str, str]]:
    """Return the transformations and reductions to try for rows X (n, M).

    With missing values features are only reduced where there are too many of them.
    """
    n_rows, n_features = X.shape
    if n_rows <= 2:
        return [("none", "none")]
    found: list[tuple[str, str]] = []
    if n_features <= _TOO_MANY_FEATURES:
        found = [("none", "none"), ("power", "none"), ("ranks", "none")]
        if np.isnan(X).any():
            return found
    if n_features > _FEW_FEATURES:
        found += [("none", "components"), ("none", "standardised components")]
        found += [("power", "standardised components")]
    if 2 < n_classes <= min(n_features, _TOO_MANY_FEATURES) and n_features <= _MOST_FOR_DISCRIMINANTS:
        found += [("none", "discriminants"), ("power", "discriminants")]
    return found


def fit_features(transform: str, reduction: str, rows: Block) -> FeatureMap | None:
    """Return the map fitted to complete rows; None where features are not changed.

    Discriminants are of the rows that have a label, and take them for equally heavy.
    """
    if transform == reduction == "none":
        return None
    X, codes, weights = rows.X, codes_of(rows), rows.row_weights
    shift = np.average(X, axis=0, weights=weights)
    deviations = np.sqrt(np.average((X - shift) ** 2, axis=0, weights=weights))
    # A constant feature must not be divided by what rounding leaves of its deviation.
    varies = deviations > _LEAST_DEVIATION * np.abs(shift)
    if not varies.any():
        return None
    scale = np.where(varies, deviations, 1.0)
    powers, standard = np.ones(X.shape[1]), (X - shift) / scale
    if transform == "power":
        powers = np.where(varies, likeliest_powers(standard, weights), 1.0)
    curves = None
    if transform == "ranks":
        curves = normal_scores(standard, weights)
        curves[1, ~varies] = 0.0
    features = along(curves, yeo_johnson(standard, powers))
    if reduction == "none":
        return FeatureMap(shift, scale, powers, curves, None, None)
    spread = scale
    if reduction != "components":
        centred = features - np.average(features, axis=0, weights=weights)
        spread = np.average(centred**2, axis=0, weights=weights)
        spread = 1.0 / np.sqrt(np.maximum(spread, _TINY))
    spread = np.where(varies, spread, 0.0)
    scaled = features * spread
    offset = np.average(scaled, axis=0, weights=weights)
    if reduction == "discriminants":
        known = codes >= 0
        discriminants = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes with a single row
            discriminants.fit(scaled[known], codes[known])
        matrix = discriminants.scalings_[:, : len(discriminants.classes_) - 1]
    else:
        matrix = principal_components(scaled - offset, weights)
    offset = np.divide(offset, spread, out=np.zeros_like(offset), where=spread > 0.0)
    return FeatureMap(shift, scale, powers, curves, offset, spread[:, None] * matrix)


def principal_components(centred: np.ndarray, weights: FloatArray) -> np.ndarray:
    """Return the directions (M, q) of largest variance of centred rows (n, M) with weights (n,)."""
    left, sizes, directions = np.linalg.svd(np.sqrt(weights)[:, None] * centred, full_matrices=False)
    _, directions = svd_flip(left, directions, u_based_decision=False)
    shares = np.cumsum(sizes**2) / np.sum(sizes**2)
    found: np.ndarray = directions[: np.searchsorted(shares, _VARIANCE_KEPT, side="right") + 1].T
    return found


def pooled_covariance(X: np.ndarray, codes: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the covariance (M, M) within the classes, of rows X (n, M) with classes (n,).

    One more row with the variances of all rows makes it positive definite. A missing value counts as the mean
    of its class; what that makes too small is scaled up by the share of values that are missing.
    """
    weights = np.ones(len(X)) if weights is None else weights
    observed = ~np.isnan(X)
    values = np.where(observed, X, 0.0)

    def deviations(codes: IntArray) -> FloatArray:
        members = weights * (codes == np.arange(codes.max() + 1)[:, None])
        means = (members @ values) / np.maximum(members @ observed, _TINY)
        return np.where(observed, values - means[codes], 0.0)

    present, codes = np.unique(codes, return_inverse=True)
    total, seen = weights.sum(), weights @ observed
    within, overall = deviations(codes), deviations(np.zeros_like(codes))
    variances = weights @ overall**2 / np.maximum(seen, _TINY)
    share = np.maximum(seen / total, 1.0 / len(X))
    scatter = (weights * within.T) @ within / np.sqrt(share[:, None] * share)
    prior = np.diag(np.where(variances > 0.0, variances, 1.0))
    return (scatter + prior) / (max(total - len(present), 0.0) + 1.0)


def fewer_rows(rows: Block, seed: int, most: int) -> Block:
    """Return about `most` of the rows: of each class its share, but at least 100 rows or all of them."""
    if len(rows.X) <= most:
        return rows
    random_state, codes = check_random_state(seed), codes_of(rows)
    kept = []
    for code in np.unique(codes):
        members = np.flatnonzero(codes == code)
        size = max(round(most * len(members) / len(rows.X)), min(len(members), _FEWEST_ROWS_OF_A_CLASS))
        kept.append(random_state.choice(members, size, replace=False))
    return rows.rows(np.sort(np.concatenate(kept)))
