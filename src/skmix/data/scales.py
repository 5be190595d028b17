"""Scales for cytometry: nearly linear around zero, logarithmic far from it."""

from __future__ import annotations

from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import lambertw
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import validate_data

from .missing import without_mask

FloatArray = NDArray[np.float64]

_FLOATS = [np.float64, np.float32]
# Bounds of positive numbers.
_TINIEST, _HUGEST = float(np.nextafter(0.0, 1.0)), float(np.finfo(np.float64).max)
# How many numbers to transform at a time: intermediate results must stay in the processor's cache.
_NUMBERS_AT_A_TIME = 1 << 15
# Largest number that an inverse returns, as a share of the largest one: sums over rows must not overflow.
_LARGEST = 1e-8
# Steps of Halley's method, which converges cubically: the fourth step is below 1e-8 of the solution, for
# values from 1e-18 to 1e12 times T and any W, M and A. The number is fixed, so that a row does not depend on
# the others.
_STEPS = 4


class ChannelTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Transforms channels independently and learns nothing from rows, so `transform` works without `fit`.

    Subclasses define `_set_scale`, which checks parameters, and `_forward` and `_backward` of values (n, M).
    """

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Check the settings; of the rows X (n, M), only the number and names of channels are used."""
        validate_data(self, X, dtype=_FLOATS, ensure_all_finite="allow-nan")
        self._set_scale()
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Rows X (n, M) on the new scale, NaN where X is NaN.

        They are computed in double precision and returned in the precision of X.
        """
        return self._apply(X, "_forward")

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """The rows (n, M) that `transform` maps to rows X (n, M) on the new scale, NaN where X is NaN.

        Values that X's precision cannot hold become its largest number by 1e-8, so that sums over rows are
        finite.
        """
        with np.errstate(over="ignore"):
            found = self._apply(X, "_backward")
        largest = _LARGEST * np.finfo(found.dtype).max
        return np.clip(found, -largest, largest)

    def _apply(self, X: ArrayLike, method: str) -> NDArray[Any]:
        """What a method makes of values (n, M), computed piece by piece; masked values are missing."""
        X = without_mask(X, np.nan)
        scale = self if "n_features_in_" in vars(self) else clone(self).fit(X)
        rows = validate_data(scale, X, dtype=_FLOATS, ensure_all_finite="allow-nan", reset=False)
        found = np.empty_like(rows)
        step = max(1, _NUMBERS_AT_A_TIME // rows.shape[1])
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            found[part] = getattr(scale, method)(rows[part].astype(np.float64))
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _checked(self, name: str, low: float, high: float, rule: str) -> float:
        """A parameter that is a number from `low` to `high`; errors state the rule."""
        value = getattr(self, name)
        if not isinstance(value, Real) or not low <= float(value) <= high:
            raise ValueError(f"{name} must be {rule}, got {self!r}.")
        return float(value)


class Arcsinh(ChannelTransformer):
    """Inverse hyperbolic sine of each channel, ``arcsinh(x / cofactor)``.

    It is nearly linear for values well below the cofactor, and logarithmic for values well above it.

    Parameters
    ----------
    cofactor : float, default=5.0
        Width of the linear range. Common values are 5 for mass cytometry and about 150 for fluorescence.

    Attributes
    ----------
    n_features_in_ : int
        Number M of channels.
    feature_names_in_ : ndarray of shape (M,)
        Names of the channels, if X had any.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix.features import Arcsinh
    >>> Arcsinh(cofactor=150.0).fit_transform([[-150.0, 0.0], [np.nan, 5000.0]]).round(3)
    array([[-0.881,  0.   ],
           [   nan,  4.2  ]])
    """

    def __init__(self, cofactor: float = 5.0) -> None:
        self.cofactor = cofactor

    def _set_scale(self) -> None:
        self._cofactor = self._checked("cofactor", _TINIEST, _HUGEST, "a positive number")

    def _forward(self, x: FloatArray) -> FloatArray:
        return np.arcsinh(x / self._cofactor)

    def _backward(self, y: FloatArray) -> FloatArray:
        return self._cofactor * np.sinh(y)


class Logicle(ChannelTransformer):
    """Logicle scale of each channel, for values around and below zero as well as large ones [1]_, [2]_.

    The scale maps a value x to the y at which the biexponential function

    .. math:: B(y) = a e^{b y} - c e^{-d y} + f

    equals x. It maps T to 1, zero to (W + A) / (M + A), and x and -x to equal distances from there. Values
    outside this range are mapped below 0 or above 1.

    Parameters
    ----------
    T : float, default=262144
        Top of the scale: the value that is mapped to 1.
    W : float, default=0.5
        Width of the nearly linear range, in decades, from 0 to M / 2.
    M : float, default=4.5
        Width of the whole scale, in decades.
    A : float, default=0
        Additional decades of negative values, from -W to M - 2 W.

    Attributes
    ----------
    zero_ : float
        The position of the value zero on the scale.
    n_features_in_ : int
        Number of channels.
    feature_names_in_ : ndarray of shape (n_channels,)
        Names of the channels, if X had any.

    References
    ----------
    .. [1] D. R. Parks, M. Roederer and W. A. Moore (2006). A new "Logicle" display method avoids deceptive
       effects of logarithmic scaling for low signals and compensated data. Cytometry A 69, 541-551.
    .. [2] W. A. Moore and D. R. Parks (2012). Update for the logicle data scale including operational code
       implementations. Cytometry A 81, 273-277.

    Examples
    --------
    >>> from skmix.features import Logicle
    >>> scale = Logicle().fit([[0.0]])
    >>> scale.transform([[-100.0], [0.0], [1000.0], [262144.0]]).ravel().round(3)
    array([0.009, 0.111, 0.454, 1.   ])
    """

    def __init__(self, T: float = 262144.0, W: float = 0.5, M: float = 4.5, A: float = 0.0) -> None:
        self.T = T
        self.W = W
        self.M = M
        self.A = A

    def _set_scale(self) -> None:
        top = self._checked("T", _TINIEST, _HUGEST, "a positive number")
        decades = self._checked("M", _TINIEST, _HUGEST, "a positive number")
        width = self._checked("W", 0.0, decades / 2.0, "from 0 to M / 2")
        negative = self._checked("A", -width, decades - 2.0 * width, "from -W to M - 2 W")
        whole = decades + negative
        zero = (negative + width) / whole
        # b and d of the biexponential. With w = W / (M + A), d solves 2 ln(d / b) + w (b + d) = 0, so that B
        # has no curvature at x = 0; in terms of w d / 2 that is Lambert's equation.
        rise = whole * np.log(10.0)
        half = 0.5 * width * np.log(10.0)
        ratio = float(lambertw(half * np.exp(-half)).real) / half if half > 0.0 else 1.0  # d / b
        self._rise, self._fall, self._ratio, self._height = rise, ratio * rise, ratio, 1.0
        self._height = top / float(self._biexponential(1.0 - zero))
        self.zero_ = zero

    def _biexponential(self, u: Any) -> Any:
        """B at a distance u ≥ 0 from the position of zero.

        B vanishes at u = 0, which determines f, and so does its second derivative, which determines the
        ratio of its two terms. In terms of expm1, f drops out, and no large numbers cancel.
        """
        grown, decayed = np.expm1(self._rise * u), np.expm1(-self._fall * u)
        return self._height * (grown - decayed / self._ratio**2)

    def _forward(self, x: FloatArray) -> FloatArray:
        target = np.abs(x) / self._height
        # Two upper bounds of the solution: the first is close for large values, the second for small ones.
        slope = self._rise * (1.0 + 1.0 / self._ratio)
        u = np.minimum(np.log1p(target) / self._rise, target / slope)
        for _ in range(_STEPS):
            grown, decayed = np.expm1(self._rise * u), np.expm1(-self._fall * u)
            error = grown - decayed / self._ratio**2 - target
            first = self._rise * ((grown + 1.0) + (decayed + 1.0) / self._ratio)
            second = self._rise**2 * (grown - decayed)
            u -= error / (first - 0.5 * error * second / first)
        return self.zero_ + np.copysign(u, x)

    def _backward(self, y: FloatArray) -> FloatArray:
        return np.copysign(self._biexponential(np.abs(y - self.zero_)), y - self.zero_)
