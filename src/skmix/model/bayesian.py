"""A drop-in replacement for scikit-learn's variational Gaussian mixture, on the shared-kernel engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import digamma
from sklearn.base import _fit_context
from sklearn.mixture import BayesianGaussianMixture as ScikitLearnBayesianGaussianMixture

from ..engine.loop import Passes
from ..engine.numbers import to_numpy
from ..engine.problem import Problem
from ..engine.records import FloatArray, IntArray, Options, Parameters
from ..engine.scoring import most_likely_kernel
from ..engine.structures import structure_of
from .checks import updating
from .drop_ins import DropInMixin, or_scikit_learn
from .settings import threads_of

# Logarithm of the largest weight. Components without rows may have weights smaller by a factor of exp(1000),
# which float64 can then represent too; still smaller ones are replaced by its smallest number.
_LARGEST, _SMALLEST = 600.0, np.finfo(np.float64).tiny

_GAPS = (
    "Input X contains NaN. The priors of BayesianGaussianMixture are moments of complete rows. "
    'GaussianMixture and SharedKernelMixture(inference="variational") take missing values.'
)


class BayesianGaussianMixture(DropInMixin, ScikitLearnBayesianGaussianMixture):
    """Variational Gaussian mixture with scikit-learn's interface, on the shared-kernel engine.

    The constructor, attributes, methods, warnings and errors are those of
    `sklearn.mixture.BayesianGaussianMixture`, and the same start leads to the same passes. The sums over rows
    come from the engine, which needs a fraction of the time; what follows from the sums is computed by
    scikit-learn. With ``reg_covar=0`` and no `covariance_prior`, a constant feature is refused; in
    scikit-learn its variance may be a rounding error.

    Parameters
    ----------
    n_components, covariance_type, tol, reg_covar, max_iter, n_init, init_params, \
weight_concentration_prior_type, weight_concentration_prior, mean_precision_prior, mean_prior, \
degrees_of_freedom_prior, covariance_prior, random_state, warm_start, verbose, verbose_interval
        As in `sklearn.mixture.BayesianGaussianMixture`.

    See Also
    --------
    GaussianMixture : The same by maximum likelihood, also with weights and missing values.
    SharedKernelMixture : ``inference="variational"`` takes labels, weights and missing values, with other
        priors.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import BayesianGaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [4, 2], [12, 4], [10, 7]])
    >>> model = BayesianGaussianMixture(n_components=2, random_state=42).fit(X)
    >>> model.means_.round(1)
    array([[2.5, 2.3],
           [8.5, 4.5]])
    >>> model.predict([[0, 0], [9, 3]])
    array([0, 1])
    """

    _theirs: ClassVar[type] = ScikitLearnBayesianGaussianMixture
    _instead = 'SharedKernelMixture(inference="variational")'

    @or_scikit_learn
    def fit(self, X: ArrayLike, y: Any = None) -> BayesianGaussianMixture:
        """Fit the mixture to rows X (N, M); `y` is ignored."""
        self._fit_rows(X)
        return self

    @or_scikit_learn
    def fit_predict(self, X: ArrayLike, y: Any = None) -> IntArray:
        """Fit the mixture and return the most probable component (N,) of each row of X (N, M)."""
        return most_likely_kernel(self._fit_rows(X), self._scoring()[0], self.covariance_type)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit_rows(self, X: ArrayLike) -> np.ndarray:
        with updating(self):
            rows = self._rows(X, least=2)
            self._continues(rows.shape[1])
            source = self._open(rows)
            loop = _Loop(**self.get_params())
            loop.__dict__.update(vars(self))
            options = Options(self.covariance_type, floor=0.0, ridge=self.reg_covar, n_jobs=threads_of(None))
            with Passes.over(Problem.of(source, options, self.n_components)) as loop._passes:
                loop.fit_predict(rows)
            source.clear_cache()
            del loop._passes
            self.lower_bounds_: list[float] = []  # scikit-learn has them since 1.7
            # The loop saw an array, and the features may have names.
            noted = ("n_features_in_", "feature_names_in_")
            self.__dict__.update({name: value for name, value in vars(loop).items() if name not in noted})
        return rows

    def _rows(self, X: ArrayLike, *, least: int | None = None) -> np.ndarray:
        rows = super()._rows(X, least=least)
        if np.isnan(rows).any():
            raise ValueError(_GAPS)
        return rows

    def _scoring(self: Any) -> tuple[Parameters, float]:
        """The kernels that scikit-learn scores rows with, and the logarithm of the scale of their weights.

        The posterior adds terms to the log-density of a Gaussian that do not depend on the row: they make
        weights (K, 1) that do not sum to one.
        """
        degrees, n_features = np.asarray(self.degrees_of_freedom_, dtype=np.float64), self.means_.shape[1]
        log_determinant = n_features * np.log(2.0 / degrees)
        log_determinant += digamma(0.5 * (degrees - np.arange(n_features)[:, None])).sum(axis=0)
        logs = self._estimate_log_weights() + 0.5 * (log_determinant - n_features / self.mean_precision_)
        shift = float(logs.max()) - _LARGEST
        weights = np.maximum(np.exp(logs - shift), _SMALLEST)[:, None]
        weights, means, covariances = (
            np.asarray(array, dtype=np.float64) for array in (weights, self.means_, self.covariances_)
        )
        return Parameters(weights, means, covariances), shift


@dataclass(frozen=True)
class _Expected:
    """What the M-step and the lower bound need from the responsibilities r of N rows."""

    sizes: FloatArray  # (K,): expected rows of each component
    means: FloatArray  # (K, M): of these rows
    covariances: FloatArray  # by covariance type: of these rows, with `reg_covar`
    entropy: float  # −Σ r log r

    def argmax(self, **_: Any) -> None:
        """Scikit-learn's loop ends with this question for the labels, which `predict` answers."""


class _Loop(ScikitLearnBayesianGaussianMixture):
    """Scikit-learn's loop, priors and updates, with sums over rows by the engine."""

    _passes: Passes

    def _e_step(self, X: np.ndarray, **unused: Any) -> tuple[float, _Expected]:
        n_rows, problem, rule = len(X), self._passes.problem, self._passes.rule
        model, shift = BayesianGaussianMixture._scoring(self)
        following, _, parts = self._passes.step(*rule.enter(problem.enter(model.batch())))
        log_likelihood = float(to_numpy(parts).sum() - problem.volume(1).sum())
        moments = problem.leave(following).take(0)
        sizes = n_rows * moments.weights[:, 0]
        entropy = log_likelihood - sizes @ self._mean_log_joints(model, moments)
        # Scikit-learn adds this to sizes, so that it can divide by them.
        sizes = sizes + 10.0 * np.finfo(np.float64).eps
        expected = _Expected(sizes, moments.means, moments.covariances, float(entropy))
        return log_likelihood / n_rows + shift, expected

    def _m_step(self, X: np.ndarray, expected: _Expected, **_: Any) -> None:
        self._estimate_weights(expected.sizes)
        self._estimate_means(expected.sizes, expected.means)
        self._estimate_precisions(expected.sizes, expected.means, expected.covariances)

    def _compute_lower_bound(self, expected: _Expected, log_prob_norm: float) -> float:
        # Theirs with a single responsibility of one, whose entropy is zero.
        return float(np.sum(super()._compute_lower_bound(np.zeros((1, 1)), log_prob_norm)) + expected.entropy)

    def _mean_log_joints(self, model: Parameters, moments: Parameters) -> FloatArray:
        """Mean logarithm (K,) of weight times density over the expected rows of each component.

        `moments` has the means of these rows and their covariances, to which a ridge was added. If
        covariances are tied, only the mean over components, by their sizes, is defined.
        """
        n_kernels, n_features = model.means.shape
        structure, away = structure_of(self.covariance_type), moments.means - model.means
        factor = structure.factor(model.covariances[None], n_features)
        whitener = factor.whitener[0]
        if structure.triangular:
            spread = moments.covariances - self.reg_covar * np.eye(n_features)
            # The factor of a tied covariance has a kernel axis of size one.
            squares = ((whitener @ spread.reshape(whitener.shape)) * whitener).sum(axis=(1, 2))
            squares = squares + ((whitener @ away[..., None])[..., 0] ** 2).sum(axis=1)
        else:
            spread = (moments.covariances - self.reg_covar).reshape(n_kernels, -1)
            squares = (whitener**2 * (np.broadcast_to(spread, away.shape) + away**2)).sum(axis=1)
        peaks = n_features * np.log(2.0 * np.pi) + factor.log_determinant[0]
        joints: FloatArray = np.log(model.weights[:, 0]) - 0.5 * (peaks + squares)
        return joints
