"""The paper's two-dimensional illustration: simulate, fit from the paper's start, compare with the truth."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from skmix.datasets import Illustration, illustration, make_shared_kernel_data
from skmix.estimators import SharedKernelMixture

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_TOLERANCE = 0.1
"""The paper's: a class latches when its log-likelihood moves by less than this between passes."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """One array of parameters, true beside estimated.

    Attributes
    ----------
    name : {'means', 'covariances', 'weights'}
        Which parameters.
    true, estimated : ndarray
        Their values: means (K, M), covariances (K, M, M) or weights (K, L).
    standard_error : ndarray
        Of each estimate, of the same shape, were the kernel of every row known. Kernels that overlap make
        the errors somewhat larger.
    """

    name: str
    true: FloatArray
    estimated: FloatArray
    standard_error: FloatArray

    @property
    def largest_error(self) -> float:
        """Largest absolute difference between an estimate and its true value."""
        return float(np.abs(self.estimated - self.true).max())


@dataclass(frozen=True, eq=False)
class IllustrationRecord:
    """What one run of the illustration leaves behind.

    Attributes
    ----------
    seed : int or None
        Seed of the sample; None when the rows came from elsewhere.
    example : Illustration
        The truth and the start.
    X : ndarray of shape (N, M)
        The rows.
    y : ndarray of shape (N,)
        Their classes.
    model : SharedKernelMixture
        The fitted model, its kernels in the order of the true ones, near which the start puts them.
    """

    seed: int | None
    example: Illustration
    X: FloatArray
    y: IntArray
    model: SharedKernelMixture

    def comparisons(self) -> Iterator[Comparison]:
        """Yield means, covariances and weights, true beside estimated."""
        true, model = self.example, self.model
        rows_of_class = np.bincount(self.y, minlength=true.weights.shape[1])
        rows_of_kernel = true.weights @ rows_of_class
        variances = np.diagonal(true.covariances, axis1=1, axis2=2)
        yield Comparison("means", true.means, model.means_, np.sqrt(variances / rows_of_kernel[:, None]))
        # The sampling variance of a Gaussian's covariance estimate: (P_dd P_ee + P_de²) / n.
        products = variances[:, :, None] * variances[:, None, :] + true.covariances**2
        covariance_error = np.sqrt(products / rows_of_kernel[:, None, None])
        yield Comparison("covariances", true.covariances, model.covariances_, covariance_error)
        weight_error = np.sqrt(true.weights * (1.0 - true.weights) / rows_of_class)
        yield Comparison("weights", true.weights, model.weights_, weight_error)

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain lists and floats, ready for JSON; the rows are not among them."""
        example, model = self.example, self.model
        comparisons = list(self.comparisons())
        return {
            "experiment": "illustration",
            "seed": self.seed,
            "rows_per_class": np.bincount(self.y).tolist(),
            "stopping": {"rule": model.stopping, "tolerance": model.tol, "max_passes": model.max_iter},
            "passes": model.n_iter_,
            "converged": model.converged_,
            "log_likelihood": model.log_likelihood_,
            "log_likelihood_per_class_and_pass": model.log_likelihood_path_.tolist(),
            "start": {
                "means": example.start_means.tolist(),
                "covariances": example.start_covariances.tolist(),
                "weights": example.start_weights.tolist(),
            },
            "true": {compared.name: compared.true.tolist() for compared in comparisons},
            "estimated": {compared.name: compared.estimated.tolist() for compared in comparisons},
            "standard_error": {compared.name: compared.standard_error.tolist() for compared in comparisons},
            "largest_error": {compared.name: compared.largest_error for compared in comparisons},
        }


def run_illustration(seed: int = 0) -> IllustrationRecord:
    """Simulate the paper's two-dimensional example and fit it from the paper's start.

    Parameters
    ----------
    seed : int, default=0
        Seed of the sample. The fit itself has nothing random.

    Returns
    -------
    IllustrationRecord
        Rows, truth and fitted model.

    Examples
    --------
    >>> from skmix.experiments.paper import run_illustration
    >>> record = run_illustration(seed=0)
    >>> max(compared.largest_error for compared in record.comparisons()) < 0.1
    True
    """
    example = illustration()
    X, y = make_shared_kernel_data(
        example.means, example.covariances, example.weights, example.n_per_class, random_state=seed
    )
    return fit_illustration(X, y, example, seed=seed)


def fit_illustration(
    X: FloatArray, y: IntArray, example: Illustration, *, seed: int | None = None
) -> IllustrationRecord:
    """Fit given rows from the example's start, with the paper's stopping rule.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows.
    y : ndarray of shape (N,)
        Their classes, 0 to L - 1, each with at least one row.
    example : Illustration
        The truth to compare with and the start to fit from.
    seed : int, optional
        Seed the rows were drawn with, to be recorded.

    Returns
    -------
    IllustrationRecord
        Rows, truth and fitted model. A fit that ran out of passes is no error: ``model.converged_`` says so.
    """
    model = SharedKernelMixture(
        init={
            "means": example.start_means,
            "covariances": example.start_covariances,
            "weights": example.start_weights,
        },
        max_iter=example.max_iter,
        stopping="per-class",
        tol=_TOLERANCE,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    return IllustrationRecord(seed, example, X, y, model)
