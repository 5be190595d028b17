"""A drop-in replacement for scikit-learn's Gaussian mixture, on the shared-kernel engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from inspect import signature
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as ScikitLearnGaussianMixture
from sklearn.utils import check_random_state

from ..engine.loop import Run, fit
from ..engine.numbers import join, on_host
from ..engine.problem import regulariser_of
from ..engine.records import FloatArray, IntArray, Options, Parameters, Status, power_of_two
from ..engine.scoring import class_log_likelihood, most_likely_kernel
from ..engine.starts import from_responsibilities
from ..engine.structures import structure_of
from .checks import check_gaps, check_weights, updating, warn_caller
from .densities import CriteriaMixin, total_score
from .drop_ins import SINGULAR, DropInMixin, or_scikit_learn
from .settings import NUMBERS_TOGETHER, threads_of

# Relative variance floor without reg_covar: below the rounding errors of scikit-learn's variances.
_ROUNDING = 1e-20
# `_check_parameters` takes the array namespace since 1.8.
_NAMESPACE: dict[str, Any] = (
    {"xp": np} if "xp" in signature(ScikitLearnGaussianMixture._check_parameters).parameters else {}
)

Candidate = tuple[tuple[bool, float], Parameters, dict[str, Any]]
"""Rank, parameters and other attributes of a fit from one start."""


class GaussianMixture(CriteriaMixin, DropInMixin, ScikitLearnGaussianMixture):
    """Gaussian mixture with scikit-learn's interface, on the shared-kernel engine.

    The constructor, attributes, methods, warnings and errors are those of `sklearn.mixture.GaussianMixture`,
    and the same start leads to the same passes. It needs a fraction of the time and memory, runs all `n_init`
    starts as one batch, and continues with the other starts if one degenerates.

    It also takes `sample_weight`, and rows in which values are missing at random, NaN: their density is that
    of the observed values, so that nothing is imputed.

    The start of tied covariances by 'k-means++' and 'random_from_data' is the covariance of the chosen rows;
    scikit-learn mixes in the moments of all rows. Other differences are limits of ``reg_covar=0``, where
    rounding decides in scikit-learn whether a covariance is singular. Here all starts must become so for its
    error. A constant feature is refused. A diagonal or spherical component that collapses onto a row x has
    variances of 1e-20 of those of the features, in scikit-learn about 2e-15 x².

    Parameters
    ----------
    n_components, covariance_type, tol, reg_covar, max_iter, n_init, init_params, weights_init, means_init, \
precisions_init, random_state, warm_start, verbose, verbose_interval
        As in `sklearn.mixture.GaussianMixture`. With `verbose`, starts run one after the other.

    See Also
    --------
    SharedKernelMixture : The same model with labels, relative variance floors and priors.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import GaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> GaussianMixture(n_components=2, random_state=0).fit(X).means_.round(6)
    array([[10.,  2.],
           [ 1.,  2.]])
    """

    _theirs: ClassVar[type] = ScikitLearnGaussianMixture
    _takes_weights = True
    lower_bound_: float

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @or_scikit_learn
    def fit(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> GaussianMixture:
        """Fit the mixture.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows; NaN marks a value that is missing at random.
        y : None
            Ignored.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows: a row of weight two counts as two rows, and a row of weight zero is ignored.
            A fit depends on their proportions alone.

        Returns
        -------
        GaussianMixture
            The fitted mixture.
        """
        self._fit_rows(X, sample_weight)
        return self

    @or_scikit_learn
    def fit_predict(self, X: ArrayLike, y: Any = None, sample_weight: ArrayLike | None = None) -> IntArray:
        """Fit the mixture, see `fit`, and return the most probable component (N,) of each row of X (N, M)."""
        return most_likely_kernel(self._fit_rows(X, sample_weight), self._current(), self.covariance_type)

    @_fit_context(prefer_skip_nested_validation=True)
    def _fit_rows(self, X: ArrayLike, sample_weight: ArrayLike | None) -> np.ndarray:
        """Fit the mixture to the rows of X (N, M) that have a weight, and return all rows."""
        with updating(self):
            all_rows = rows = self._rows(X, least=2)
            weights = check_weights(on_host(sample_weight), len(rows))
            if weights is not None:
                # Only their proportions matter, and a power of two changes no digit.
                weights = weights / power_of_two(weights.max())
                if not weights.all():
                    rows, weights = rows[weights > 0], weights[weights > 0]
                if weights.min() == weights.max():
                    weights = None  # starts are then drawn as by scikit-learn
            if len(rows) < self.n_components:
                raise ValueError(
                    "Expected n_samples >= n_components "
                    f"but got n_components = {self.n_components}, n_samples = {len(rows)}"
                )
            self._check_parameters(rows, **_NAMESPACE)
            check_gaps(rows, self)
            source = self._open(rows, weights)
            moments = source.summary.moments
            largest = max(moments.high.max(), -moments.low.min())
            if rows.dtype == np.float32 and largest > np.sqrt(np.finfo(np.float32).max / rows.size):
                raise ValueError(
                    f"X has values of magnitude {largest:.3g}, whose squares overflow float32. Give X as "
                    "float64 or rescale it."
                )
            best = max(self._candidates(source), key=lambda candidate: candidate[0], default=None)
            if best is None:
                raise ValueError(SINGULAR)
            _, parameters, attributes = best
            self.__dict__.update(attributes)
            self._store(parameters, rows.dtype)
            if self.max_iter and not self.converged_:
                warn_caller(
                    "Best performing initialization did not converge. "
                    "Try different init parameters, or increase max_iter, "
                    "tol, or check for degenerate data.",
                    ConvergenceWarning,
                )
        return all_rows

    @or_scikit_learn
    def _total_score(
        self, X: Any, y: Any = None, sample_weight: Any = None, errors: Any = None
    ) -> tuple[float, float, int]:
        if errors is not None:
            raise ValueError(f"{type(self).__name__} takes no errors: use SharedKernelMixture.")
        scores = self.score_samples(X)
        return total_score(scores, check_weights(on_host(sample_weight), len(scores)))

    def _scoring(self) -> tuple[Parameters, float]:
        return self._current(), 0.0

    def _log_density(self, rows: np.ndarray) -> FloatArray:
        # Faster than the sum over an array of all components.
        return class_log_likelihood(rows, self._current(), self.covariance_type)[:, 0]

    def _candidates(self, source: Any) -> Iterator[Candidate]:
        """Fit the mixture from all starts; yield the fits whose covariances did not become singular."""
        fresh = not self._continues(source.n_features)
        total, rows, random_state = source.summary.total, source.X, check_random_state(self.random_state)
        if source.summary.gaps:
            # Starts have the features' means for missing values.
            rows = np.where(np.isnan(rows), source.summary.moments.mean.astype(rows.dtype), rows)
        # In scikit-learn too, rounding keeps components of one row alive.
        structure = structure_of(self.covariance_type)
        rounding = self.reg_covar == 0.0 and not structure.triangular
        options = self._options(_ROUNDING if rounding else 0.0)
        size = np.prod(structure.shape(self.n_components, source.n_features))
        # Lines of several starts at a time would be mixed, and the compiled core makes small fits one by one.
        is_small = source.climbs(self.n_components, source.n_features, structure)
        together = 1 if self.verbose or is_small else max(1, int(NUMBERS_TOGETHER // size))
        n_starts, printer = self.n_init if fresh else 1, copy(self)
        for first in range(0, n_starts, together):
            printer._print_verbose_msg_init_beg(first)
            numbers = range(first, min(first + together, n_starts))
            drawn = [self._start(source, rows, random_state) if fresh else self._current() for _ in numbers]
            starts = [start for start in drawn if start is not None]
            if self.max_iter == 0:  # the last start is the fit
                attributes = {"converged_": False, "n_iter_": 0, "lower_bound_": -np.inf, "lower_bounds_": []}
                yield from (((False, float(first)), start, attributes) for start in starts[-1:])
                continue
            if not starts:
                continue
            previous = np.inf if fresh else total * float(self.lower_bound_)
            report = printer._reporter(total, fresh) if self.verbose else None
            result = fit(
                source, join([start.batch() for start in starts]), options, callback=report, previous=previous
            )
            for number, (path, status) in enumerate(zip(result.path, result.status, strict=True)):
                failed, converged = status == Status.FAILED, bool(status == Status.CONVERGED)
                if failed and np.isnan(result.fell[number]).all():
                    continue  # a covariance became singular
                bounds = path[:, 0] / total
                printer._print_verbose_msg_init_end(bounds[-1], converged)
                attributes = {
                    "converged_": converged,
                    "n_iter_": int(result.n_iter[number]),
                    "lower_bounds_": bounds.tolist(),
                    "lower_bound_": float(bounds[-1]),
                }
                # A start that failed by rounding is used only if there is no other.
                yield (not failed, bounds[-1]), result.parameters.take(number).map(np.array), attributes

    def _reporter(self, total: float, fresh: bool) -> Callable[[Run], None]:
        """A function that prints each pass over rows of this total weight, while a start runs."""
        bound = -np.inf if fresh else self.lower_bound_

        def report(run: Run) -> None:
            nonlocal bound
            before, bound = bound, run.totals()[0] / total
            self._print_verbose_msg_iter_end(run.n_passes, bound - before)

        return report

    def _options(self, floor: float) -> Options:
        return Options(
            covariance_type=self.covariance_type,
            max_iter=max(self.max_iter, 1),
            tol=self.tol,
            floor=floor,
            ridge=self.reg_covar,
            n_jobs=threads_of(None),
        )

    # ------------------------------------------------------------ parameters and attributes

    def _current(self) -> Parameters:
        """The parameters of the last fit."""
        names = ("weights_", "means_", "precisions_cholesky_")
        weights, means, root = (np.asarray(getattr(self, name), dtype=np.float64) for name in names)
        if structure_of(self.covariance_type).triangular:
            # (UUᵀ)⁻¹ for an upper-triangular factor U.
            inverse = np.linalg.inv(root)
            return Parameters(weights[:, None], means, np.swapaxes(inverse, -1, -2) @ inverse)
        return Parameters(weights[:, None], means, root**-2.0)

    def _store(self, parameters: Parameters, dtype: np.dtype) -> None:
        """Set the attributes of scikit-learn that hold parameters."""
        structure, n_features = structure_of(self.covariance_type), parameters.means.shape[1]
        variances, limits = structure.variances(parameters.covariances[None]), np.finfo(dtype)
        if variances.max() > limits.max or variances.min() < limits.tiny:
            raise ValueError(
                f"Variances of components are between {variances.min():.3g} and {variances.max():.3g}, out "
                f"of the range of {dtype}. Give X as float64, rescale it, or increase reg_covar."
            )
        covariances = parameters.covariances.astype(dtype)
        root = structure.factor(parameters.covariances[None], n_features).whitener[0]
        root = np.swapaxes(root, -1, -2) if structure.triangular else root
        # The factor of a tied covariance has a kernel axis of size one; a spherical factor repeats features.
        root = root[:, 0] if structure.isotropic else root.reshape(covariances.shape)
        if not structure.factor(covariances.astype(np.float64)[None], n_features).usable[0]:
            # Rounding changes entries by 2⁻²⁴ of the deviations, and eigenvalues by up to M times as much.
            diagonal = np.arange(n_features)
            covariances[..., diagonal, diagonal] *= 1.0 + n_features * 2.0**-22
        values = (parameters.weights[:, 0], parameters.means, covariances, root)
        self.weights_, self.means_, self.covariances_, self.precisions_cholesky_ = (
            np.ascontiguousarray(value, dtype=dtype) for value in values
        )
        root = self.precisions_cholesky_
        self.precisions_ = root @ np.swapaxes(root, -1, -2) if structure.triangular else root**2

    def _start(self, source: Any, X: np.ndarray, random_state: np.random.RandomState) -> Parameters | None:
        """Scikit-learn's start, computed without an N × K array of responsibilities.

        X (N, M) are the rows of the source, completed. None stands for a start that is singular there too.
        """
        structure, given = structure_of(self.covariance_type), dict[str, Any]()
        if self.weights_init is not None:
            given["weights"] = np.asarray(self.weights_init, dtype=np.float64)[:, None]
        if self.means_init is not None:
            given["means"] = np.asarray(self.means_init, dtype=np.float64)
        if self.precisions_init is not None:
            precisions = np.asarray(self.precisions_init, dtype=np.float64)
            given["covariances"] = np.linalg.inv(precisions) if structure.triangular else 1.0 / precisions
        if len(given) == 3:
            return Parameters(**given)
        # First: it refuses features whose squares scikit-learn's clusters would let overflow.
        frame = source.summary.frame(structure)
        n_rows, n_kernels, weights = len(X), self.n_components, source.weights
        state = random_state.get_state()
        labels, masses = np.full(n_rows, -1), weights
        if self.init_params == "kmeans":
            clusters = KMeans(n_clusters=n_kernels, n_init=1, random_state=random_state)
            labels = clusters.fit(X, sample_weight=weights).labels_
        elif self.init_params != "random":
            if self.init_params == "k-means++":
                _, chosen = kmeans_plusplus(X, n_kernels, random_state=random_state, sample_weight=weights)
            else:
                chances = None if weights is None else weights / weights.sum()
                chosen = random_state.choice(np.arange(n_rows), size=n_kernels, replace=False, p=chances)
            # Each component has one row, however often this is repeated.
            labels[chosen], masses = np.arange(n_kernels), None

        def responsibilities(start: int, stop: int) -> FloatArray:
            if self.init_params == "random":
                drawn = random_state.uniform(size=(stop - start, n_kernels))
                shares = (drawn / drawn.sum(axis=1, keepdims=True)).T
            else:
                shares = (labels[start:stop] == np.arange(n_kernels)[:, None]).astype(np.float64)
            return shares if masses is None else shares * masses[start:stop]

        regulariser = regulariser_of(self._options(0.0), frame, structure, n_kernels)
        start = from_responsibilities(X, responsibilities, frame, structure, regulariser)
        start = replace(frame.leave(start, structure).take(0), **given)
        if structure.factor(start.covariances[None], X.shape[1]).usable[0]:
            return start
        # Without reg_covar, a component of one row is singular here. In scikit-learn, rounding makes it a
        # little wider, and a tied covariance includes the moments of all rows. Weights do not count for it.
        random_state.set_state(state)
        theirs = ScikitLearnGaussianMixture(**self.get_params())
        theirs.set_params(max_iter=0, n_init=1, warm_start=False, verbose=0, random_state=random_state)
        try:
            return GaussianMixture._current(theirs.fit(X))
        except ValueError:
            return None
