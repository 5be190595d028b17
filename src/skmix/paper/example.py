"""The paper's two-dimensional illustration: simulate it, fit from the paper's start, compare the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data

from .digits import FloatArray, IntArray
from .published import TOLERANCE


@dataclass(frozen=True, eq=False)
class Illustration:
    """A shared-kernel mixture to sample from, and a start for a fit to the sample."""

    means: FloatArray  #: (K, M), true kernel means
    covariances: FloatArray  #: (K, M, M), true kernel covariances
    weights: FloatArray  #: (K, L), true Pr(kernel k | class j)
    start: dict[str, FloatArray]  #: means (K, M), covariances (K, M, M) and weights (K, L)
    n_per_class: int  #: rows to draw for each class
    max_iter: int  #: largest number of passes of EM


def illustration() -> Illustration:
    """Return the paper's example of three classes that share three kernels in the plane.

    Examples
    --------
    >>> from skmix.datasets import make_shared_kernel_data
    >>> from skmix.paper import illustration
    >>> example = illustration()
    >>> X, y = make_shared_kernel_data(
    ...     example.means, example.covariances, example.weights, 2000, random_state=0
    ... )
    >>> X.shape
    (6000, 2)
    """
    identities = np.tile(np.eye(2), (3, 1, 1))
    return Illustration(
        means=np.array([[0.0, 2.0], [3.0, 1.0], [6.0, 3.0]]),
        covariances=0.5 * identities,
        weights=np.array([[0.1, 0.7, 0.3], [0.8, 0.1, 0.1], [0.1, 0.2, 0.6]]),
        start={
            "means": np.array([[-1.0, 0.0], [2.0, 1.0], [7.0, 2.0]]),
            "covariances": 2.0 * identities,
            "weights": np.full((3, 3), 1.0 / 3.0),
        },
        n_per_class=2000,
        max_iter=50,
    )


@dataclass(frozen=True, eq=False)
class IllustrationRecord:
    """One run of the illustration."""

    seed: int  # of the sample
    example: Illustration  # the truth and the start
    X: FloatArray  # (N, M)
    y: IntArray  # (N,)
    model: SharedKernelMixture  # its kernels start near the true ones and have the same order

    def numbers(self) -> dict[str, dict[str, Any]]:
        """Return the true parameters, the estimates, their standard errors and the largest errors by name.

        Arrays are means (K, M), covariances (K, M, M) and weights (K, L). Standard errors are those of
        estimates if the kernel of every row were known; overlap of kernels increases them a little.
        """
        names, example = ("means", "covariances", "weights"), self.example
        weights, covariances = example.weights, example.covariances
        true = {name: getattr(example, name) for name in names}
        estimated = {name: getattr(self.model, f"{name}_") for name in names}
        rows_of_class = np.bincount(self.y, minlength=weights.shape[1])
        rows_of_kernel = weights @ rows_of_class
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        # The sampling variance of a Gaussian's covariance estimate: (P_dd P_ee + P_de²) / n.
        products = variances[:, :, None] * variances[:, None, :] + covariances**2
        errors = {
            "means": np.sqrt(variances / rows_of_kernel[:, None]),
            "covariances": np.sqrt(products / rows_of_kernel[:, None, None]),
            "weights": np.sqrt(weights * (1.0 - weights) / rows_of_class),
        }
        largest = {name: float(np.abs(estimated[name] - true[name]).max()) for name in names}
        return {"true": true, "estimated": estimated, "standard_error": errors, "largest_error": largest}

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, without the rows, as values for JSON."""
        model = self.model
        return {
            "experiment": "illustration",
            "seed": self.seed,
            "rows_per_class": np.bincount(self.y).tolist(),
            "stopping": {"rule": "per-class", "tolerance": TOLERANCE, "max_passes": model.max_iter},
            "passes": model.n_iter_,
            "converged": model.converged_,
            "log_likelihood": model.log_likelihood_,
            "log_likelihood_per_class_and_pass": model.log_likelihood_path_.tolist(),
            **{
                key: {name: np.asarray(value).tolist() for name, value in values.items()}
                for key, values in ({"start": self.example.start} | self.numbers()).items()
            },
        }


def run_illustration(seed: int = 0) -> IllustrationRecord:
    """Simulate the paper's two-dimensional example with a seed and fit it from the paper's start.

    Examples
    --------
    >>> from skmix.paper import run_illustration
    >>> max(run_illustration(seed=0).numbers()["largest_error"].values()) < 0.1
    True
    """
    example = illustration()
    X, y = make_shared_kernel_data(
        example.means, example.covariances, example.weights, example.n_per_class, random_state=seed
    )
    model = SharedKernelMixture(
        init=example.start,
        covariance_prior=None,
        max_iter=example.max_iter,
        tol=TOLERANCE,
        stopping="per-class",
    )
    return IllustrationRecord(seed, example, X, y, model.fit(X, y))
