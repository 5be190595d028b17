"""Feature maps of classifiers: fill missing values, transform features and project them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from sklearn.utils.extmath import svd_flip

from ..engine.records import BoolArray, FloatArray
from ..engine.rows.blocks import Block
from ..model.mixture import SharedKernelMixture

# Few passes and a loose tolerance to fill missing values: the result serves only to choose settings.
_PASSES_TO_FILL = 20
_TOLERANCE_TO_FILL = 1e-2
# Singular values below this share of the largest count as zero.
_LEAST_SINGULAR = 0.05
# Share of the variance that the principal components retain.
_VARIANCE_KEPT = 0.95
# Standardised values are clipped to this magnitude, so that powers of them stay finite.
_FARTHEST = 1e8
# The powers to try; a finer grid makes no difference.
_POWERS = np.linspace(-4.0, 6.0, 41)
# Number of rows to choose powers with; more do not change the choice.
_ROWS_FOR_POWERS = 2000
# The log-likelihood per row that a power must gain over no transformation.
_LEAST_GAIN = 1e-3
# Knots of the piecewise linear map from values to normal scores.
_N_KNOTS = 32
# Normal score of the largest value; that of the smallest is its negative.
_FARTHEST_SCORE = 3.0
# A feature whose standard deviation is below this share of its mean is constant.
_LEAST_DEVIATION = 1e-12
# Smallest divisor.
_TINY = np.finfo(np.float64).tiny


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
        filled = np.zeros(rows.shape)
        filled[:, known] = gaussian.impute(rows[:, known])
        return filled

    return fill


def with_map(rows: Block, function: Callable[[np.ndarray], np.ndarray]) -> Block:
    """Return rows with their features mapped by a function."""
    return replace(rows, X=function(rows.X))


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
        projected: np.ndarray = centred @ self.matrix
        with_gaps = np.flatnonzero(np.isnan(projected).any(axis=1))
        back = np.linalg.pinv(self.matrix).T if len(with_gaps) else self.matrix
        for row in with_gaps:
            seen = ~np.isnan(centred[row])
            if seen.any():
                # Directions that the observed values hardly determine stay at the mean.
                projected[row] = np.linalg.lstsq(back[seen], centred[row, seen], rcond=_LEAST_SINGULAR)[0]
        return projected


# ---------------------------------------------------------------- powers and ranks


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
        scores = ndtri((np.cumsum(masses) - 0.5 * masses) / masses.sum())
        scores = np.clip(scores, -_FARTHEST_SCORE, _FARTHEST_SCORE)
        if len(values) > 1:
            scores[[0, -1]] = -_FARTHEST_SCORE, _FARTHEST_SCORE
        knots = np.arange(len(values))
        if len(values) > _N_KNOTS:
            knots = np.searchsorted(scores, np.linspace(scores[0], scores[-1], _N_KNOTS))
        # Repeat the last knot if there are fewer values than knots.
        knots = np.append(knots, np.full(_N_KNOTS - len(knots), len(values) - 1))
        knots[-1] = len(values) - 1
        curve[:] = values[knots], scores[knots]
    return curves


# ---------------------------------------------------------------- maps


def fit_features(transform: str, reduction: str, rows: Block) -> FeatureMap | None:
    """Fit a feature map to rows without missing values; return None if it is the identity."""
    fitted = None if transform == reduction == "none" else fit_transform(transform, rows)
    return fitted if fitted is None else project(fitted, reduction, rows)


def fit_transform(transform: str, rows: Block) -> FeatureMap | None:
    """Fit a feature map without a projection to rows; return None if no feature varies."""
    X, weights = rows.X, rows.row_weights
    shift = np.average(X, axis=0, weights=weights)
    deviations, varies = deviations_from(shift, rows)
    if not varies.any():
        return None
    scale = np.where(varies, deviations, 1.0)
    powers, curves, standard = np.ones(X.shape[1]), None, (X - shift) / scale
    if transform == "power":
        powers = np.where(varies, likeliest_powers(standard, weights), 1.0)
    if transform == "ranks":
        curves = normal_scores(standard, weights)
        curves[1, ~varies] = 0.0
    return FeatureMap(shift, scale, powers, curves, None, None)


def deviations_from(means: FloatArray, rows: Block) -> tuple[FloatArray, BoolArray]:
    """Return the standard deviations (M,) of features with these means (M,), and which features vary.

    The deviation of a constant feature is a rounding error: do not divide by it.
    """
    deviations = np.sqrt(np.average((rows.X - means) ** 2, axis=0, weights=rows.row_weights))
    return deviations, deviations > _LEAST_DEVIATION * np.abs(means)


def project(fitted: FeatureMap, reduction: str, rows: Block) -> FeatureMap:
    """Return a feature map with a projection of its features, fitted to the same rows.

    Discriminants are fitted to the labelled rows, without their weights.
    """
    if reduction == "none":
        return fitted
    features, codes, weights = fitted.transform(rows.X), rows.codes, rows.row_weights
    _, varies = deviations_from(fitted.shift, rows)
    # Components of the features as they are have their units; otherwise, features are standardised.
    spread = fitted.scale
    if reduction != "components":
        centred = features - np.average(features, axis=0, weights=weights)
        variances = np.average(centred**2, axis=0, weights=weights)
        spread = 1.0 / np.sqrt(np.maximum(variances, _TINY))
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
    return fitted._replace(offset=offset, matrix=spread[:, None] * matrix)
