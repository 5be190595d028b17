"""Feature maps of classifiers: fill missing values, transform features and project them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.utils import check_random_state
from sklearn.utils.extmath import svd_flip

from ...engine.records import BoolArray, FloatArray
from ...engine.rows.blocks import Block
from ..mixture import SharedKernelMixture

# Singular values below this share of the largest count as zero.
_LEAST_SINGULAR = 0.05
# Few passes and a loose tolerance to fill missing values: the result serves only to choose settings.
_PASSES_TO_FILL = 20
_TOLERANCE_TO_FILL = 1e-2
# Share of the variance that the principal components retain.
_VARIANCE_KEPT = 0.95
# Up to this many features, kernels learn their orientation without a reduction.
_FEW_FEATURES = 12
# Above this many features, they are always reduced: full covariances would take too long.
_TOO_MANY_FEATURES = 100
# Largest number of features for discriminants, whose time grows with its cube.
_MOST_FOR_DISCRIMINANTS = 500
# Standardised values are clipped to this magnitude, so that powers of them stay finite.
_FARTHEST = 1e8
# The powers to try; a finer grid makes no difference.
_POWERS = np.linspace(-4.0, 6.0, 41)
# Number of rows to choose powers with; more do not change the choice.
_ROWS_FOR_POWERS = 2000
# Knots of the piecewise linear map from values to normal scores.
_N_KNOTS = 32
# Normal score of the largest value; that of the smallest is its negative.
_FARTHEST_SCORE = 3.0
# A feature whose standard deviation is below this share of its mean is constant.
_LEAST_DEVIATION = 1e-12
# The log-likelihood per row that a power must gain over no transformation.
_LEAST_GAIN = 1e-3
# Smallest divisor.
_TINY = np.finfo(np.float64).tiny
# Smallest number of rows of a class in a sample of the rows.
_FEWEST_ROWS_OF_A_CLASS = 100


def filler(X: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that replaces missing values by their conditional means under a Gaussian.

    The Gaussian is fitted to X (n, M). Features without any value in X become zero.
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
    """Standardises features, transforms them by powers or normal scores, and projects them.

    Values z = (x − shift) / scale are transformed by Yeo and Johnson's powers (1 is the identity), then by
    curves, to t; the result is (t − offset) A. Without curves or a matrix A, that step is left out.
    """

    shift: FloatArray  # (M,)
    scale: FloatArray  # (M,)
    powers: FloatArray  # (M,)
    curves: FloatArray | None  # (2, M, k): ascending knots of each curve, and its values there
    offset: FloatArray | None  # (M,)
    matrix: FloatArray | None  # (M, q)

    def transform(self, X: np.ndarray) -> np.ndarray:
        """Return the features (n, q) of rows X (n, M).

        Without a projection, missing values stay missing. With one, the features of a row with missing values
        are fitted to its other values by least squares; a row without any value stays missing.
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
                # Directions that the observed values hardly determine stay at the mean.
                reduced[row] = np.linalg.lstsq(back[seen], centred[row, seen], rcond=_LEAST_SINGULAR)[0]
        return reduced


def yeo_johnson(z: np.ndarray, powers: FloatArray) -> np.ndarray:
    """Transform standardised values z (n, M) by powers (M,); a power of one is the identity."""
    z = np.clip(z, -_FARTHEST, _FARTHEST)
    # The exponent is λ for z ≥ 0 and 2 − λ for z < 0; an exponent of zero means the logarithm.
    exponent = np.where(z >= 0.0, powers, 2.0 - powers)
    logs = np.log1p(np.abs(z))
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.where(exponent == 0.0, logs, np.expm1(exponent * logs) / exponent)
    return np.where(exponent == 1.0, z, np.copysign(size, z))


def likeliest_powers(z: np.ndarray, weights: FloatArray) -> FloatArray:
    """Return the powers (M,), multiples of 1/4, of highest Gaussian likelihood for z (n, M)."""
    step = -(-len(z) // _ROWS_FOR_POWERS)
    z, shares = z[::step], weights[::step] / weights[::step].sum()
    slopes = shares @ (np.sign(z) * np.log1p(np.abs(z)))

    def log_variance(power: float) -> FloatArray:
        values = yeo_johnson(z, np.full(z.shape[1], power))
        return np.log(shares @ (values - shares @ values) ** 2)

    with np.errstate(divide="ignore"):
        likelihoods = [(power - 1.0) * slopes - 0.5 * log_variance(power) for power in _POWERS]
    # A feature with two values is equally likely under all powers.
    likelihoods[_POWERS.tolist().index(1.0)] += _LEAST_GAIN
    return _POWERS[np.argmax(np.nan_to_num(likelihoods, nan=-np.inf, posinf=-np.inf), axis=0)]


def along(curves: FloatArray | None, z: np.ndarray) -> np.ndarray:
    """Map values z (n, M) by piecewise linear curves (2, M, k), which have slope one beyond their ends."""
    if curves is None:
        return z
    pairs = zip(z.T, curves.swapaxes(0, 1), strict=True)
    within = np.column_stack([np.interp(column, *curve) for column, curve in pairs])
    return within + (z - np.clip(z, curves[0, :, 0], curves[0, :, -1]))


def normal_scores(z: np.ndarray, weights: FloatArray) -> FloatArray:
    """Return curves (2, M, k) that map the features of rows z (n, M) with weights (n,) to normal scores.

    A value is mapped to the standard normal quantile at the share of rows below it; rows with the same value
    count half. The smallest and the largest value are mapped to ± 3, because they often have a special
    meaning, such as none or all.
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
        # Repeat the last knot if there are fewer values than knots.
        kept = np.append(kept, np.full(_N_KNOTS - len(kept), len(values) - 1))
        kept[-1] = len(values) - 1
        curve[:] = values[kept], scores[kept]
    return curves


def transforms(X: np.ndarray, n_classes: int) -> list[tuple[str, str]]:
    """Return the transformations and reductions to try for rows X (n, M).

    With missing values, features are reduced only if there are too many of them.
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
    """Fit a feature map to rows without missing values; return None if it is the identity."""
    found = None if transform == reduction == "none" else fit_transform(transform, rows)
    return found if found is None else project(found, reduction, rows)


def fit_transform(transform: str, rows: Block) -> FeatureMap | None:
    """Fit a feature map without a projection to rows; return None if no feature varies."""
    X, weights = rows.X, rows.row_weights
    shift = np.average(X, axis=0, weights=weights)
    deviations, varies = _deviations(rows, shift)
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
    return FeatureMap(shift, scale, powers, curves, None, None)


def _deviations(rows: Block, means: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the deviations (M,) of features with these means (M,), and whether they vary.

    The deviation of a constant feature is a rounding error: do not divide by it.
    """
    deviations = np.sqrt(np.average((rows.X - means) ** 2, axis=0, weights=rows.row_weights))
    return deviations, deviations > _LEAST_DEVIATION * np.abs(means)


def project(given: FeatureMap, reduction: str, rows: Block) -> FeatureMap:
    """Return a feature map with a projection of its features, fitted to the same rows.

    Discriminants are fitted to the labelled rows, without their weights.
    """
    if reduction == "none":
        return given
    features, codes, weights = given.transform(rows.X), rows.codes, rows.row_weights
    shift, scale, powers, curves, _, _ = given
    spread, (_, varies) = scale, _deviations(rows, shift)
    if reduction != "components":
        centred = features - np.average(features, axis=0, weights=weights)
        spread = np.average(centred**2, axis=0, weights=weights)
        spread = 1.0 / np.sqrt(np.maximum(spread, _TINY))
    spread = np.where(varies, spread, 0.0)
    scaled = features * spread
    offset = np.average(scaled, axis=0, weights=weights)
    if reduction == "discriminants":
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # slow to import

        known = codes >= 0
        discriminants = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto")
        with warnings.catch_warnings(action="ignore"):  # about classes with a single row
            discriminants.fit(scaled[known], codes[known])
        matrix = discriminants.scalings_[:, : len(discriminants.classes_) - 1]
    else:
        rooted = np.sqrt(weights)[:, None] * (scaled - offset)
        left, sizes, directions = np.linalg.svd(rooted, full_matrices=False)
        _, directions = svd_flip(left, directions, u_based_decision=False)
        shares = np.cumsum(sizes**2) / np.sum(sizes**2)
        matrix = directions[: np.searchsorted(shares, _VARIANCE_KEPT, side="right") + 1].T
    offset = np.divide(offset, spread, out=np.zeros_like(offset), where=spread > 0.0)
    return FeatureMap(shift, scale, powers, curves, offset, spread[:, None] * matrix)


def pooled_covariance(rows: Block) -> FloatArray:
    """Return the within-class covariance (M, M) of labelled rows (n, M) without missing values.

    A pseudo-row with the variances of all rows makes it positive definite.
    """
    weights, (present, codes) = rows.row_weights, np.unique(rows.codes, return_inverse=True)
    class_weights = weights * (codes == np.arange(len(present))[:, None])
    means = (class_weights @ rows.X) / class_weights.sum(axis=1, keepdims=True)
    within = rows.X - means[codes]
    centre = np.average(rows.X, axis=0, weights=weights)
    variances = np.average((rows.X - centre) ** 2, axis=0, weights=weights)
    _, varies = _deviations(rows, centre)
    prior = np.diag(np.where(varies, variances, 1.0))
    scatter = (weights * within.T) @ within
    return (scatter + prior) / (max(weights.sum() - len(present), 0.0) + 1.0)


def fewer_rows(rows: Block, seed: int, most: float) -> Block:
    """Draw about `most` rows: each class in proportion, but at least 100 rows of it or all."""
    if len(rows.X) <= most:
        return rows
    random_state, codes = check_random_state(seed), rows.codes
    kept = []
    for code in np.unique(codes):
        of_class = np.flatnonzero(codes == code)
        size = max(round(most * len(of_class) / len(rows.X)), min(len(of_class), _FEWEST_ROWS_OF_A_CLASS))
        kept.append(random_state.choice(of_class, size, replace=False))
    return rows.rows(np.sort(np.concatenate(kept)))
