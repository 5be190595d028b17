"""Scales for cytometry: against the definition in many digits, and published values."""

from __future__ import annotations

from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from skmix.data.recipe import Recipe, scale_of, transformer_of
from skmix.features import Arcsinh, Logicle

SETTINGS = [
    (262144.0, 0.5, 4.5, 0.0),
    (1000.0, 1.0, 4.0, 0.0),
    (10000.0, 0.0, 5.0, 0.0),
    (262144.0, 2.0, 4.5, -1.0),
    (262144.0, 1.0, 4.5, 1.5),
    (1.0, 2.25, 4.5, 0.0),
]
# Shares of T, on both sides of zero, and beyond the scale.
SHARES = np.array([0.0, 1e-9, 1e-6, 1e-4, 0.003, 0.1, 0.7, 1.0, 25.0])
SHARES = np.concatenate([-SHARES, SHARES])


def root(increasing: Any, high: Any) -> Any:
    """Return where a function is zero between 0 and `high`, by bisection."""
    low, high = mp.mpf(0), mp.mpf(high)
    for _ in range(150):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < 0 else (low, middle)
    return high


def biexponential(T: float, W: float, M: float, A: float) -> Any:
    """Return B as Moore and Parks define it, by a, b, c, d and f, on the side of positive values."""
    T, W, M, A = map(mp.mpf, (T, W, M, A))
    w, x2 = W / (M + A), A / (M + A)
    x1, x0 = x2 + w, x2 + 2 * w
    b = (M + A) * mp.log(10)
    d = root(lambda d: 2 * (mp.log(d) - mp.log(b)) + w * (b + d), b)
    c_a = mp.exp(x0 * (b + d))
    f_a = mp.exp(b * x1) - c_a * mp.exp(-d * x1)
    a = T / (mp.exp(b) - f_a - c_a * mp.exp(-d))
    return x1, lambda y: a * mp.exp(b * y) - a * c_a * mp.exp(-d * y) - a * f_a


@pytest.mark.parametrize("setting", SETTINGS)
def test_logicle_is_the_inverse_of_the_biexponential(setting: tuple[float, ...]) -> None:
    values = setting[0] * SHARES
    scale = Logicle(*setting)
    found = scale.fit_transform(values[:, None]).ravel()
    assert_allclose(scale.zero_, (setting[1] + setting[3]) / (setting[2] + setting[3]))
    with mp.workdps(50):
        zero, B = biexponential(*setting)
        expected = []
        for value in map(float, values):
            u = root(lambda u, size=value: B(zero + u) - abs(size), 3)
            expected.append(float(zero + mp.sign(value) * u))
    assert_allclose(found, expected, rtol=4e-16, atol=4e-16)
    back = scale.inverse_transform(np.array(expected)[:, None]).ravel()
    assert_allclose(back, values, rtol=1e-13, atol=1e-15 * setting[0])


def test_published_values() -> None:
    """Table 8 of Gating-ML 2.0 (ISAC): logicle(x, 1000, 1, 4, 0), to six decimals."""
    x = np.array([-10, -5, -1, 0, 0.3, 1, 3, 10, 100, 1000])
    table = [0.067574, 0.147986, 0.228752, 0.25, 0.256384, 0.271248, 0.312897, 0.432426, 0.739548, 1.0]
    assert_allclose(Logicle(1000, 1, 4, 0).fit_transform(x[:, None]).ravel(), table, atol=5e-7)


def test_arcsinh_is_in_many_digits() -> None:
    values = np.array([-1e6, -3.0, -1e-9, 0.0, 1e-9, 0.1, 150.0, 1e6])
    found = Arcsinh(150.0).fit_transform(values[:, None]).ravel()
    with mp.workdps(40):
        expected = [float(mp.asinh(mp.mpf(float(value)) / 150)) for value in values]
    assert_allclose(found, expected, rtol=1e-15)
    assert_allclose(Arcsinh(150.0).inverse_transform(found[:, None]).ravel(), values, rtol=1e-14)
    # Values that are too large stay finite, and so do their sums.
    assert_array_equal(np.abs(Arcsinh().inverse_transform([[1e3, -1e3]])) / np.finfo(float).max, 1e-8)


@pytest.mark.parametrize("scale", [Arcsinh(150.0), Logicle(), Logicle(W=0.0), Logicle(W=2.0, A=-0.5)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_rows_keep_their_precision_and_gaps(scale: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X = (10.0 ** np.random.RandomState(0).uniform(-2, 6, size=(200, 3))).astype(dtype)
    X[::2] *= -1
    X[5, 1] = np.nan
    there = scale.fit_transform(X)
    assert there.dtype == dtype
    assert_array_equal(np.isnan(there), np.isnan(X))
    assert_allclose(there, scale.transform(X.astype(np.float64)), rtol=np.finfo(dtype).eps)
    monkeypatch.setattr("skmix.data.scales._NUMBERS_AT_A_TIME", 7)
    assert_array_equal(scale.transform(X), there)


def test_scales_have_a_name_or_are_kept_with_their_parameters() -> None:
    for cofactor, name in {5.0: "arcsinh:5", 150: "arcsinh:150", 0.05: "arcsinh:0.05"}.items():
        assert scale_of(Arcsinh(cofactor)) == name
        assert transformer_of(name).cofactor == cofactor
    assert [transformer_of(name).cofactor for name in ("arcsinh", "arcsinh:")] == [5.0, 5.0]
    assert scale_of(Logicle()) == scale_of(Logicle(262144, 0.5, 4.5, 0)) == "logicle"
    assert [scale_of(transformer_of(name)) for name in ("logicle", "none")] == ["logicle", "none"]
    for own in ({"T": 1e5}, {"W": 0.6}, {"M": 5.0}, {"A": 0.1}):
        kept = scale_of(Logicle(**own))
        assert isinstance(kept, dict)
        assert repr(transformer_of(kept)) == repr(Logicle(**own))
        given = Recipe(dict.fromkeys("abc"), {"compensate": True, "transform": kept})
        assert given.of_columns([2, 0]) == given.preparation
    for name in ("log", "Arcsinh:5", "logicle:5", ""):
        with pytest.raises(ValueError, match=f"'{name}' is none of arcsinh"):
            transformer_of(name)
    for cofactor in ("0", "-1", "inf", "nan", "five"):
        with pytest.raises(ValueError, match=f"the cofactor '{cofactor}' is not a number above 0"):
            transformer_of(f"arcsinh:{cofactor}")
    with pytest.raises(TypeError, match="transform must be a name, Arcsinh, Logicle, None or 'auto'"):
        scale_of(StandardScaler())
    with pytest.raises(ValueError, match=r"given has -9.0 for column 'a', which stands for a missing value"):
        Recipe({"a": None}, {"transform": "none", "missing": ["-9"]}).encode(0, -9.0)


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        (Arcsinh(0.0), r"cofactor must be a positive number, got Arcsinh\(cofactor=0.0\)"),
        (Arcsinh([1.0, 2.0]), "cofactor must be a positive number"),
        (Arcsinh("five"), "cofactor must be a positive number"),
        (Arcsinh(np.nan), "cofactor must be a positive number"),
        (Logicle(T=np.inf), "T must be a positive number"),
        (Logicle(W=2.3), r"W must be from 0 to M / 2, got Logicle\(W=2.3\)"),
        (Logicle(M=0.0, W=0.0), "M must be a positive number"),
        (Logicle(A=3.6), "A must be from -W to M - 2 W"),
    ],
)
def test_a_wrong_setting_is_refused(scale: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        clone(scale).fit([[1.0, 2.0]])
    with pytest.raises(ValueError, match=words):
        scale_of(scale)


@parametrize_with_checks([Arcsinh(), Logicle()])
def test_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)
