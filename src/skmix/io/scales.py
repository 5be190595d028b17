"""Scales for cytometry: nearly linear around zero, logarithmic far from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import lambertw
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import validate_data

FloatArray = NDArray[np.float64]

_FLOATS = [np.float64, np.float32]
# How many numbers to transform at a time: intermediate results must stay in the processor's cache.
_NUMBERS_AT_A_TIME = 1 << 15
# Largest number that an inverse returns, as a share of the largest one: sums over rows must not overflow.
_LARGEST = 1e-8
# Steps of Halley's method, which converges cubically: the fourth step is below 1e-8 of the solution, for
# values from 1e-18 to 1e12 times T and any W, M and A. The number is fixed, so that a row does not depend on
# the others.
_STEPS = 4


class ChannelTransformer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Transforms channels independently and learns nothing from rows, so `transform` works without `fit`."""

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Check the settings against the number of channels.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows; NaN where a value is missing. Their values are not used.
        y : ignored
            Present for pipelines.
        """
        rows = validate_data(self, X, dtype=_FLOATS, ensure_all_finite="allow-nan")
        self._set_scale(rows.shape[1])
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the rows on the new scale.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows; NaN where a value is missing.

        Returns
        -------
        ndarray of shape (n, M)
            NaN where X is NaN; computed in double precision and returned in the precision of X.
        """
        return self._apply(X, type(self)._forward)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return rows on the new scale as the rows that `transform` maps to them.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows on the new scale; NaN where a value is missing.

        Returns
        -------
        ndarray of shape (n, M)
            NaN where X is NaN. Values that X's precision cannot hold become its largest number by 1e-8, so
            that sums over rows are finite.
        """
        with np.errstate(over="ignore"):
            found = self._apply(X, type(self)._backward)
        largest = _LARGEST * np.finfo(found.dtype).max
        return np.clip(found, -largest, largest)

    def _apply(self, X: ArrayLike, function: Callable[[Any, FloatArray], FloatArray]) -> NDArray[Any]:
        """Return a function of values (n, M), computed piece by piece."""
        scale = self if "n_features_in_" in vars(self) else clone(self).fit(X)
        rows = validate_data(scale, X, dtype=_FLOATS, ensure_all_finite="allow-nan", reset=False)
        found = np.empty_like(rows)
        step = max(1, _NUMBERS_AT_A_TIME // rows.shape[1])
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            found[part] = function(scale, rows[part].astype(np.float64))
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _of_channels(self, name: str, n_channels: int) -> FloatArray:
        """Return a parameter as finite numbers (M,), one per channel."""
        given = getattr(self, name)
        try:
            values = np.asarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a number or one for each channel, got {given!r}.") from None
        if values.shape not in ((), (n_channels,)):
            raise ValueError(
                f"{name} must be a number or one for each of the {n_channels} channels, got an array of "
                f"shape {values.shape}."
            )
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite, got {given!r}.")
        return np.broadcast_to(values, n_channels).copy()

    def _set_scale(self, n_channels: int) -> None:
        """Check the parameters for `n_channels` channels and store the constants of `_forward`."""
        raise NotImplementedError

    def _forward(self, x: FloatArray) -> FloatArray:
        """Return values (n, M) on the new scale."""
        raise NotImplementedError

    def _backward(self, y: FloatArray) -> FloatArray:
        """Return values (n, M) of the new scale on the old one."""
        raise NotImplementedError


class Arcsinh(ChannelTransformer):
    """Inverse hyperbolic sine of each channel, ``arcsinh(x / cofactor)``.

    It is nearly linear for values well below the cofactor, and logarithmic for values well above it.

    Parameters
    ----------
    cofactor : float or array-like of shape (M,), default=5.0
        Width of the linear range, one for all channels or one per channel. Common values are 5 for mass
        cytometry and about 150 for fluorescence.

    Attributes
    ----------
    cofactor_ : ndarray of shape (M,)
        The cofactor of each channel.
    n_features_in_ : int
        Number M of channels.
    feature_names_in_ : ndarray of shape (M,)
        Names of the channels, if X had any.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix.features import Arcsinh
    >>> X = np.array([[-5.0, 0.0], [np.nan, 5000.0]])
    >>> scale = Arcsinh(cofactor=[5.0, 150.0]).fit(X)
    >>> scale.transform(X).round(3)
    array([[-0.881,  0.   ],
           [   nan,  4.2  ]])
    """

    def __init__(self, cofactor: Any = 5.0) -> None:
        self.cofactor = cofactor

    def _set_scale(self, n_channels: int) -> None:
        cofactor = self._of_channels("cofactor", n_channels)
        if (cofactor <= 0.0).any():
            raise ValueError(f"cofactor must be positive, got {self.cofactor!r}.")
        self.cofactor_ = cofactor

    def _forward(self, x: FloatArray) -> FloatArray:
        return np.arcsinh(x / self.cofactor_)

    def _backward(self, y: FloatArray) -> FloatArray:
        return self.cofactor_ * np.sinh(y)


class Logicle(ChannelTransformer):
    """Logicle scale of each channel, for values around and below zero as well as large ones [1]_, [2]_.

    The scale maps a value x to the y at which the biexponential function

    .. math:: B(y) = a e^{b y} - c e^{-d y} + f

    equals x. It maps T to 1, zero to (W + A) / (M + A), and x and -x to equal distances from there. Values
    outside this range are mapped below 0 or above 1.

    Each parameter is a number, or an array-like with one number per channel.

    Parameters
    ----------
    T : float or array-like of shape (n_channels,), default=262144
        Top of the scale: the value that is mapped to 1.
    W : float or array-like of shape (n_channels,), default=0.5
        Width of the nearly linear range, in decades, from 0 to M / 2.
    M : float or array-like of shape (n_channels,), default=4.5
        Width of the whole scale, in decades.
    A : float or array-like of shape (n_channels,), default=0
        Additional decades of negative values, from -W to M - 2 W.

    Attributes
    ----------
    zero_ : ndarray of shape (n_channels,)
        The position of the value zero on the scale of each channel.
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

    def __init__(self, T: Any = 262144.0, W: Any = 0.5, M: Any = 4.5, A: Any = 0.0) -> None:
        self.T = T
        self.W = W
        self.M = M
        self.A = A

    def _set_scale(self, n_channels: int) -> None:
        top, width, decades, negative = (self._of_channels(name, n_channels) for name in "TWMA")
        for name, low, value, high, rule in (
            ("T", np.nextafter(0.0, 1.0), top, np.inf, "positive"),
            ("M", np.nextafter(0.0, 1.0), decades, np.inf, "positive"),
            ("W", 0.0, width, decades / 2.0, "from 0 to M / 2"),
            ("A", -width, negative, decades - 2.0 * width, "from -W to M - 2 W"),
        ):
            wrong = np.flatnonzero((value < low) | (value > high))
            if len(wrong):
                j = wrong[0]
                raise ValueError(
                    f"{name} must be {rule}, got T={top[j]:g}, W={width[j]:g}, M={decades[j]:g} and "
                    f"A={negative[j]:g} for channel {j}."
                )
        whole = decades + negative
        zero = (negative + width) / whole
        # b and d of the biexponential. With w = W / (M + A), d solves 2 ln(d / b) + w (b + d) = 0, so that B
        # has no curvature at x = 0; in terms of w d / 2 that is Lambert's equation.
        rise = whole * np.log(10.0)
        half = 0.5 * width * np.log(10.0)
        ratio = np.ones(n_channels)  # d / b
        linear = half > 0.0
        ratio[linear] = lambertw(half[linear] * np.exp(-half[linear])).real / half[linear]
        self._rise, self._fall, self._ratio = rise, ratio * rise, ratio
        self._height = np.ones(n_channels)
        self._height = top / self._biexponential(1.0 - zero)
        self.zero_ = zero

    def _biexponential(self, u: FloatArray) -> FloatArray:
        """Return B at a distance u ≥ 0 from the position of zero.

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
