"""What a classifier adds to Bayes' rule: refusing rows unlike those of training, and temperature scaling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np

from ..engine.compute.arrays import on_host
from ..engine.compute.blocks import Block, Blocks
from ..engine.model import FloatArray, IntArray
from ..engine.refine.temperature import least_log_loss
from ._warnings import warn_caller
from .densities import log_density
from .rows import Training

# Bits of a density that one pass over blocks settles: a histogram of that many counts.
_DIGIT = 16


def best_temperature(log_joints: FloatArray, codes: IntArray, weights: FloatArray | None = None) -> float:
    """Return the temperature of least log-loss, given log-joints (n, L), the true classes (n,) and weights.

    It is 1, with a warning, where no row is misclassified; where the model is worse than chance, or a true
    class has a prior of zero, there is none.
    """
    n_rows = len(codes)
    own = log_joints[np.arange(n_rows), codes, None]
    if np.any(own == -np.inf):
        raise ValueError(
            f"{np.sum(own == -np.inf)} of {n_rows} rows have a label whose class prior is zero: "
            "no temperature makes them possible."
        )
    possible = log_joints > -np.inf
    gaps = np.where(possible, log_joints - own, 0.0)
    if np.average(gaps.max(axis=1), weights=weights) <= 0.0:
        warn_caller(
            f"All {n_rows} rows are classified correctly, so they set no lower bound on the temperature: it "
            "stays 1. Calibrate on more rows, some of them hard.",
        )
        return 1.0
    guess = np.average(gaps.sum(axis=1) / possible.sum(axis=1), weights=weights)
    if guess >= 0.0:
        raise ValueError(
            f"On these {n_rows} rows the classifier is worse than guessing: the mean log-likelihood of the "
            f"true class is {guess:.3g} below the average over classes. Are the labels in the right order?"
        )
    return least_log_loss(log_joints, codes, weights, lowest=0.0)[0]


def check_outlier_label(label: Any, classes: np.ndarray) -> None:
    """Refuse a label for outliers that is one of the classes or does not fit beside them."""
    kind = classes.dtype.kind
    if label in classes.tolist():
        raise ValueError(f"outlier_label={label!r} is one of the classes: {classes.tolist()[:10]}.")
    if kind in "iu":
        fits, wanted = isinstance(label, Integral) and not isinstance(label, bool), "an integer"
    elif kind == "f":
        fits, wanted = isinstance(label, Real) and not isinstance(label, bool), "a number"
    elif kind in "US":
        fits, wanted = label is None or isinstance(label, str), "a string or None"
    else:
        fits, wanted = kind == "O", "possible only with labels that have a third value"
    if not fits:
        raise ValueError(
            f"outlier_label must be {wanted}, as the labels are {classes.dtype} ({classes.tolist()[:3]} …), "
            f"got {label!r}."
        )


def with_outliers(labels: np.ndarray, outlying: np.ndarray, outlier_label: Any) -> np.ndarray:
    """Return labels (n,) with those of outlying rows replaced, in a type that holds both."""
    if labels.dtype.kind == "O" or outlier_label is None:
        mixed = labels.astype(object)
    else:
        mixed = labels.astype(np.result_type(labels.dtype, np.array(outlier_label).dtype))
    mixed[outlying] = outlier_label
    return mixed


def threshold_of(classifier: Any, training: Training) -> float:
    """Return the log-density below which `reject_below` of the training rows, or of their weight, lie."""
    if training.blocks is not None:
        return density_quantile(classifier, training.blocks, classifier.reject_below)
    rows, _, weights = training.source.start_rows()
    densities = on_host(log_density(classifier, rows))
    return float(np.quantile(densities, classifier.reject_below, weights=weights, method="inverted_cdf"))


@dataclass(frozen=True)
class CountDensities:
    """Counts the log-densities of a block's rows by their next digit, in an order-preserving code.

    `prefix` are the leading digits that are known, of `n_known` bits.
    """

    classifier: Any
    prefix: int
    n_known: int

    def __call__(self, block: Block) -> FloatArray:
        """Return the weight of the rows (2^digit,) that have the prefix, by their next digit."""
        block = replace(block, y=None).informative()
        counts = np.zeros(1 << _DIGIT)
        if not len(block.X):
            return counts
        codes = ordered(log_density(self.classifier, block.X))
        weights = np.ones(len(codes)) if block.weights is None else block.weights
        if self.n_known:
            own = codes >> np.uint64(64 - self.n_known) == np.uint64(self.prefix)
            codes, weights = codes[own], weights[own]
        digits = (codes >> np.uint64(64 - self.n_known - _DIGIT)) & np.uint64((1 << _DIGIT) - 1)
        counts += np.bincount(digits.astype(np.int64), weights=weights, minlength=1 << _DIGIT)
        return counts


def density_quantile(classifier: Any, blocks: Blocks, quantile: float) -> float:
    """Return the smallest log-density up to which that share of the rows, or of their weight, lies.

    It is found digit by digit, in four passes and without an array of all densities.
    """
    prefix, below, wanted = 0, 0.0, 0.0
    for n_known in range(0, 64, _DIGIT):
        counts = blocks.reduce(CountDensities(classifier, prefix, n_known), np.add)
        if not n_known:
            wanted = quantile * counts.sum()
        reached = below + np.cumsum(counts)
        # Rounding of weights may leave the last sum a little short of what is wanted.
        digit = min(int(np.searchsorted(reached, wanted)), int(np.flatnonzero(counts)[-1]))
        below = float(reached[digit] - counts[digit])
        prefix = (prefix << _DIGIT) | digit
    return float(disordered(np.array([prefix], dtype=np.uint64))[0])


def ordered(values: FloatArray) -> np.ndarray:
    """Return unsigned integers (n,) in the same order as the numbers (n,)."""
    bits = values.astype(np.float64).view(np.uint64)
    sign = np.uint64(1 << 63)
    codes: np.ndarray = np.where(bits & sign, ~bits, bits | sign)
    return codes


def disordered(codes: np.ndarray) -> FloatArray:
    """Return the numbers behind what `ordered` made of them."""
    sign = np.uint64(1 << 63)
    numbers: FloatArray = np.where(codes & sign, codes & ~sign, ~codes).view(np.float64)
    return numbers
