"""Measures of predictions in resampled rows, and their 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
Interval = tuple[float, float]

_RESAMPLES = 1000
# Rows times classes that are resampled, at most, so that 1000 resamples take about a second.
_MOST = 20_000
# Entries of an array of resamples.
_CHUNK = 1_000_000


def outwards(low: float, high: float, form: str = ".3f") -> str:
    """Return an interval as text in a format; its ends are rounded away from each other."""
    ends = []
    for value, rounding in ((low, ROUND_FLOOR), (high, ROUND_CEILING)):
        if math.isfinite(value):
            # With "#", all digits are shown, and so the place of the last one.
            digits = Decimal(f"{value:{form.replace('.', '#.')}}")
            # Twelve decimals: what is 1 but for rounding errors stays 1.
            value = float(Decimal(f"{value:.12f}").quantize(digits, rounding)) + 0.0
        ends.append(f"{value:{form}}")
    return " to ".join(ends)


def measures_of(
    codes: NDArray[np.integer], taken: NDArray[np.integer], probabilities: FloatArray
) -> Callable[[FloatArray], dict[str, FloatArray]]:
    """Return a function of how often rows count (B, n): their log-loss, macro F1 and ROC AUC, each (B,).

    `codes` (n,) are true classes, `taken` (n,) the predicted ones, −1 for none, and `probabilities` (n, L).
    F1 is averaged over the classes that occur, and with more than two classes the area under the ROC curve
    over one against all; classes without rows, or with all rows, have none. NaN without any class, or where
    one of them does not count.
    """
    every = np.arange(probabilities.shape[1])
    losses = -np.log(np.clip(probabilities[np.arange(len(codes)), codes], np.finfo(np.float64).eps, 1.0))
    true, predicted = ((each[:, None] == every).astype(np.float64) for each in (codes, taken))
    occurs = (true + predicted).any(axis=0)
    # With two classes, both have the same curve.
    some = [c for c in every[len(every) == 2 :] if 0 < np.count_nonzero(codes == c) < len(codes)]
    areas = [_area_of(codes == c, probabilities[:, c]) for c in some]

    def measures(counts: FloatArray) -> dict[str, FloatArray]:
        f1 = ratio(2.0 * (counts @ (true * predicted)), counts @ true + counts @ predicted)
        return {
            "log_loss": (counts @ losses) / counts.sum(axis=1),
            "macro_f1": _mean(f1[:, occurs]),
            "roc_auc": _mean(np.array([area(counts) for area in areas]).reshape(-1, len(counts)).T),
        }

    return measures


def _area_of(is_own: NDArray[np.bool_], scores: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return a function of how often rows count (B, n): the area under the ROC curve of their scores (n,).

    It is the share (B,) of pairs in which the row of the class scores higher; ties are half.
    """
    order = np.argsort(scores, kind="stable")
    ordered, is_own = scores[order], is_own[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] > ordered[:-1]])

    def area(counts: FloatArray) -> FloatArray:
        own, rest = (np.add.reduceat(counts[:, order] * each, starts, axis=1) for each in (is_own, ~is_own))
        below = np.cumsum(rest, axis=1) - rest / 2.0
        return ratio((own * below).sum(axis=1), own.sum(axis=1) * rest.sum(axis=1))

    return area


def bootstrap(
    codes: NDArray[np.integer], taken: NDArray[np.integer], probabilities: FloatArray, weights: NDArray[Any]
) -> tuple[dict[str, float], dict[str, Interval | None]]:
    """Return measures of predicted rows, see `measures_of`, and their 95 % intervals by the bootstrap.

    Rows, with their weights (n,), are drawn with replacement, the same ones every time. Of very many rows a
    part is drawn from, and the spread is scaled to all. Resamples that lack a class are left out: a mean over
    the other classes would be another measure. A measure that does not vary, or that most resamples lack, has
    no interval.
    """
    random, rows = np.random.default_rng(0), np.flatnonzero(weights)
    weights = weights[rows].astype(np.float64)
    codes, taken, probabilities = codes[rows], taken[rows], probabilities[rows]
    whole = measures_of(codes, taken, probabilities)(weights[None])
    n, most = len(rows), max(1000, _MOST // probabilities.shape[1])
    part = np.sort(random.permutation(n)[:most])
    measures = measures_of(codes[part], taken[part], probabilities[part])
    weights, size = weights[part], max(1, _CHUNK // len(part))
    centre, found = measures(weights[None]), []
    for begin in range(0, _RESAMPLES, size):
        n_drawn = min(size, _RESAMPLES - begin)
        places = (
            random.integers(len(part), size=(n_drawn, len(part))) + len(part) * np.arange(n_drawn)[:, None]
        )
        counts = np.bincount(places.ravel(), minlength=places.size).reshape(places.shape) * weights
        found.append(measures(counts))
    values: dict[str, float] = {name: float(each[0]) for name, each in whole.items()}
    intervals: dict[str, Interval | None] = dict.fromkeys(values)
    for name, value in values.items():
        each = np.concatenate([drawn[name] for drawn in found])
        each = each[np.isfinite(each)]
        if 2 * len(each) > _RESAMPLES and each.min() < each.max():
            spread = np.quantile(each, (0.025, 0.975)) - centre[name][0]
            low, high = value + math.sqrt(len(part) / n) * spread
            intervals[name] = float(low), float(high)
    return values, intervals


def ratio(counts: NDArray[Any], totals: NDArray[Any]) -> FloatArray:
    """Return counts / totals, NaN where a total is zero."""
    return np.divide(counts, totals, out=np.full(totals.shape, np.nan), where=totals > 0)


def _mean(values: FloatArray) -> FloatArray:
    """Return the mean (B,) of values (B, L); NaN without any."""
    return values.mean(axis=1) if values.shape[1] else np.full(len(values), np.nan)
