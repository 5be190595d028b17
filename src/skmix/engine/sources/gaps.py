"""Rows with missing values: grouped by which values they have, each group an ordinary set of rows.

Under missing at random, a row with gaps has the density of what is observed, the marginal of the mixture. Its
expected second-order terms are linear in those of the observed features, so a group is collected like any
other rows, under the marginal parameters, and its statistics are completed afterwards: no row is filled in.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..compute.arrays import is_numpy, namespace
from ..covariances import Structure
from ..model import FloatArray, IntArray, Parameters, Statistics
from .frame import Frame
from .memory import Rows

_CHUNK = 1 << 13


def has_gaps(X: np.ndarray) -> bool:
    """Return whether any value of X (N, M) is missing, looking at a chunk of rows at a time."""
    if not is_numpy(X):
        xp = namespace(X)
        return bool(xp.any(xp.isnan(xp.sum(X, axis=0))) and xp.any(xp.isnan(X)))
    return any(bool(np.isnan(X[a : a + _CHUNK]).any()) for a in range(0, len(X), _CHUNK))


def group_rows(X: np.ndarray) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (rows, columns) for each pattern of gaps: the rows that have it, and the features they have."""
    observed = np.packbits(~np.isnan(X), axis=1)
    patterns, pattern_of = np.unique(observed, axis=0, return_inverse=True)
    order = np.argsort(pattern_of.ravel(), kind="stable")
    bounds = np.searchsorted(pattern_of.ravel()[order], np.arange(len(patterns) + 1))
    for pattern, a, b in zip(patterns, bounds[:-1], bounds[1:], strict=True):
        yield order[a:b], np.flatnonzero(np.unpackbits(pattern, count=X.shape[1]))


def fill_gaps(X: np.ndarray, classes: IntArray) -> np.ndarray:
    """Return rows (N, M) with the mean of their class in place of missing values: for starts, not for EM."""
    filled = X.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of no value
        overall = np.nanmean(X, axis=0)
        for c in np.unique(classes):
            rows = np.flatnonzero(classes == c)
            means = np.nanmean(X[rows], axis=0)
            means = np.where(np.isnan(means), overall, means)
            filled[rows] = np.where(np.isnan(X[rows]), means, X[rows])
    return filled


@dataclass(frozen=True)
class Pattern:
    """The rows that have the same features.

    Attributes
    ----------
    columns : ndarray of shape (O,)
        The features they have, in increasing order.
    rows : Rows
        The rows in these features.
    """

    columns: IntArray
    rows: Rows


class Patterns:
    """Labelled rows with gaps. It stands where `Rows` stands in the loop.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows, NaN where a value is missing; each with at least one value.
    classes : ndarray of shape (N,)
        Class of each row.
    n_classes : int
        L.
    frame : Frame
        Coordinates of the loop.
    structure : Structure
        Covariance structure.
    weights : ndarray of shape (N,), optional
        Positive weights of the rows.
    """

    def __init__(
        self,
        X: np.ndarray,
        classes: IntArray,
        n_classes: int,
        frame: Frame,
        structure: Structure,
        weights: FloatArray | None = None,
    ) -> None:
        self.frame = frame
        self.structure = structure
        self.n_rows, self.n_features = X.shape
        self.n_classes = n_classes
        self.patterns = [
            Pattern(
                columns,
                Rows(
                    X[np.ix_(index, columns)],
                    classes[index],
                    n_classes,
                    frame.take(columns),
                    structure,
                    None if weights is None else weights[index],
                ),
            )
            for index, columns in group_rows(X)
        ]

    @property
    def class_sizes(self) -> FloatArray:
        """Number of rows (L,) of each class, or the sum of their weights."""
        return np.sum([pattern.rows.class_sizes for pattern in self.patterns], axis=0)

    def log_volume(self) -> FloatArray:
        """Return for each class (L,) what the frame adds to its log-likelihood."""
        volumes = [pattern.rows.log_volume() for pattern in self.patterns]
        return np.sum(volumes, axis=0)


def marginal(parameters: Parameters, columns: IntArray, structure: Structure) -> Parameters:
    """Return the parameters of the marginal density of some features."""
    return replace(
        parameters,
        means=parameters.means[..., columns],
        covariances=structure.marginal(parameters.covariances, columns),
    )


def complete(
    statistics: Statistics,
    columns: IntArray,
    here: FloatArray,
    origins: FloatArray,
    parameters: Parameters,
    structure: Structure,
) -> Statistics:
    """Return the expected statistics of all features, given those of the observed ones.

    Parameters
    ----------
    statistics : Statistics
        Of the observed features, about `here`.
    columns : ndarray of shape (O,)
        The observed features.
    here : ndarray of shape (R, K, O)
        Origins of the moments.
    origins : ndarray of shape (R, K, M)
        Origins that the completed moments are to have.
    parameters : Parameters
        Of all features: what the statistics were collected with.
    structure : Structure
        Covariance structure.
    """
    first, second = structure.complete(
        statistics.mass.sum(axis=-1),
        statistics.first,
        statistics.second,
        columns,
        here - origins[..., columns],
        parameters.means - origins,
        parameters.covariances,
    )
    return Statistics(statistics.log_likelihood, statistics.mass, first, second)
