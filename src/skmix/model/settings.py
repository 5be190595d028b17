"""The settings of a mixture or classifier: its constructor parameters, checked and parsed once per fit.

`Settings.of(estimator)` refuses what cannot be combined; everything below an estimator reads its fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from joblib import cpu_count, effective_n_jobs
from joblib.parallel import get_active_backend
from sklearn.frozen import FrozenEstimator

from ..engine.records import FloatArray, Options
from ..engine.structures import structure_of
from .arguments import check_covariances

# Largest number of entries in the covariances of a batch of starts.
NUMBERS_TOGETHER = 1 << 17
# Smallest and largest tolerance of tol='auto', for many rows and for few.
AUTO_TOL = 3e-4, 1e-3
# Strengths of learnt priors on covariances, relative to 'auto'.
_LEARNT_PRIORS = {"auto": 1.0, "weak": 0.01}
# Full covariances take too long with more features than this, if there are also fewer rows than features.
_MANY_FEATURES = 500
_PRECISIONS = ("float64", "float32", "tf32")
# Settings that cannot be combined unless one of them has its default value.
_EXCLUSIVE = {
    "tail": ("inference", "device"),
    "inference": ("freeze", "stopping"),
    "weight_prior": ("inference", "stopping"),
    "group_shift": ("inference", "tail", "stopping"),
}


@dataclass(frozen=True, eq=False)
class Settings:
    """The settings of a mixture, or of the mixtures of a classifier."""

    n_kernels: int | None  # None: the default for the rows, or the number of given means
    covariance_type: str  # a name or 'auto', see `covariance_type_for`
    is_robust: bool  # whether kernels are Student's t
    degrees: float | None  # their degrees of freedom; None: learnt
    init: str | None  # the name of the start; None if it is given
    start: Any  # a given start: a dict of arrays, a list of them (for feature sets) or a fitted estimator
    freeze: Any  # what keeps its given values: 'kernels', 'weights' or None
    n_init: int
    max_iter: int
    stopping: Any  # 'total' or 'per-class'
    tol: float | None  # None: 'auto'
    variance_floor: float
    learnt_prior: float | None  # strength of a prior on covariances that is learnt, relative to 'auto'
    given_prior: tuple[float, Any] | None  # rows and covariance, None for the default, of a given prior
    weight_prior: Any  # a concentration, 'hierarchical' or None
    pulls_groups: bool  # whether several classes make weight_prior 'hierarchical', where that is possible
    group_shift: Any  # a strength, 'auto' or None
    is_variational: bool
    device: str | None  # None: the CPU
    precision: Any  # of sums over rows on the device
    n_jobs: int | None
    random_state: Any

    @classmethod
    def of(cls, estimator: Any) -> Settings:
        """Check and parse the parameters of an estimator, each of which has a valid type.

        Raise ValueError for impossible values, and for settings that cannot be combined.
        """
        device, precision = device_and_precision(estimator.device)
        prior, is_named = estimator.covariance_prior, isinstance(estimator.init, str)
        settings = cls(
            n_kernels=estimator.n_kernels,
            covariance_type=estimator.covariance_type,
            is_robust=estimator.tail is not None,
            degrees=None if estimator.degrees is None else float(estimator.degrees),
            init=estimator.init if is_named else None,
            start=None if is_named else thawed(estimator.init),
            freeze=estimator.freeze,
            n_init=estimator.n_init,
            max_iter=estimator.max_iter,
            stopping=estimator.stopping,
            tol=None if estimator.tol == "auto" else float(estimator.tol),
            variance_floor=estimator.variance_floor,
            learnt_prior=_LEARNT_PRIORS[prior] if isinstance(prior, str) else None,
            given_prior=None if isinstance(prior, str | None) else _given_prior(prior),
            weight_prior=None if estimator.weight_prior == "auto" else estimator.weight_prior,
            pulls_groups=estimator.weight_prior == "auto",
            group_shift=getattr(estimator, "group_shift", None),
            is_variational=estimator.inference == "variational",
            device=device,
            precision=precision,
            n_jobs=estimator.n_jobs,
            random_state=estimator.random_state,
        )
        settings._refuse_combinations(estimator)
        return settings

    def _refuse_combinations(self, estimator: Any) -> None:
        is_hierarchical = self.weight_prior == "hierarchical"
        used = {
            "tail": estimator.tail,
            "inference": "variational" if self.is_variational else None,
            "device": estimator.device,
            "freeze": self.freeze,
            "stopping": self.stopping if self.stopping == "per-class" else None,
            "weight_prior": "hierarchical" if is_hierarchical else None,
            "group_shift": self.group_shift,
        }
        # Frozen weights cannot be learnt.
        frozen = {"freeze": ("weight_prior",)} if self.freeze == "weights" else {}
        for one, others in (_EXCLUSIVE | frozen).items():
            for other in others:
                if used[one] is not None and used[other] is not None:
                    problem = f"{one}={used[one]!r} cannot be combined with {other}={used[other]!r}"
                    raise ValueError(f"{problem}: leave one out.")
        if self.freeze == "kernels":
            has_degrees = hasattr(self.start, "kernel_degrees_")  # of the t kernels of a fitted start
            if has_degrees and (self.degrees is not None or not self.is_robust):
                raise ValueError(
                    "freeze='kernels' keeps the t kernels of init: set tail='t', and leave degrees out."
                )
            if self.is_robust and self.degrees is None and not has_degrees:
                raise ValueError(
                    "freeze='kernels' keeps the degrees of freedom too: give degrees with tail='t'."
                )
        if self.degrees is not None and not self.is_robust:
            raise ValueError(f"degrees={self.degrees:g} is for t kernels: set tail='t', or leave it out.")
        if self.freeze is not None and self.init is not None:
            raise ValueError(
                f"freeze={self.freeze!r} keeps given values, so init must be a dict or a fitted mixture, "
                f"got {self.init!r}."
            )
        if self.stopping == "per-class" and self.tol is None:
            raise ValueError(
                "stopping='per-class' compares log-likelihoods of whole classes: give tol as a number, "
                "such as 0.1, the paper's."
            )
        if not (self.is_variational or is_hierarchical) and (self.weight_prior or 1.0) < 1.0:
            raise ValueError(
                f"weight_prior={self.weight_prior} must be at least 1 for EM, whose weights would become "
                "negative; inference='variational' accepts any positive number."
            )

    def for_groups(self, n_classes: int) -> Settings:
        """The settings of a fit to so many classes, whose weights may be pulled towards common ones.

        Weights of a given start, and kernels of single classes, stay as they are without a prior.
        """
        is_plain = self.freeze is None and not self.is_variational and self.stopping == "total"
        if not (self.pulls_groups and n_classes > 1 and is_plain) or self.init == "class":
            return self
        is_given = isinstance(self.start, Mapping) and self.start.get("weights") is not None
        is_given |= self.fitted_start is not None and not hasattr(self.start, "weight_prior_")
        return self if is_given else replace(self, weight_prior="hierarchical")

    @property
    def fitted_start(self) -> Any:
        """The fitted estimator from which the fit goes on; None if the start is something else."""
        if self.start is None or isinstance(self.start, Mapping | list):
            return None
        if not hasattr(self.start, "class_prior_"):
            raise ValueError(
                f"init is a {type(self.start).__name__} that is not fitted. Searches copy settings without "
                "their fit: in a grid, give sklearn.frozen.FrozenEstimator(model)."
            )
        return self.start

    @property
    def is_learnt_by_em(self) -> bool:
        """Whether EM learns all parameters: only then may covariances have a learnt prior."""
        return not self.is_variational and self.freeze is None

    @property
    def has_floor(self) -> bool:
        """Whether the resolution of the features bounds the variances: not in maximum likelihood."""
        return self.is_learnt_by_em and (self.learnt_prior is not None or self.given_prior is not None)

    @property
    def n_threads(self) -> int:
        """Number of threads."""
        return threads_of(self.n_jobs)

    def covariance_type_for(self, n_rows: int, n_features: int) -> str:
        """The name of the covariance type, where 'auto' depends on the start and on the rows."""
        if self.covariance_type != "auto":
            return self.covariance_type
        if self.fitted_start is not None:
            return str(self.fitted_start.covariance_type_)
        is_given = isinstance(self.start, Mapping) and self.start.get("covariances") is not None
        return "diag" if is_wide(n_rows, n_features) and not is_given else "full"

    def options(self, covariance_type: str, n_features: int) -> Options:
        """The options of the engine, with the smallest tolerance for tol='auto' and without learnt priors."""
        rows, covariance = _checked_prior(self.given_prior, n_features)
        return Options(
            covariance_type=covariance_type,
            max_iter=self.max_iter,
            tol=AUTO_TOL[0] if self.tol is None else self.tol,
            stopping=self.stopping,
            # A floor would raise frozen covariances.
            floor=0.0 if self.freeze == "kernels" else self.variance_floor,
            covariance_prior=rows,
            covariance_prior_scale=covariance,
            weight_prior=self.weight_prior,
            n_jobs=self.n_threads,
            freeze=self.freeze,
            precision=self.precision,
            inference="variational" if self.is_variational else "em",
            learn_degrees=self.is_robust and self.degrees is None and self.freeze != "kernels",
        )


# ---------------------------------------------------------------- single settings


def _given_prior(prior: Any) -> tuple[float, Any]:
    if isinstance(prior, tuple) and len(prior) != 2:
        raise ValueError(f"covariance_prior as a tuple is (rows, covariance), got {len(prior)} entries.")
    rows, covariance = prior if isinstance(prior, tuple) else (prior, None)
    if not isinstance(rows, Real) or not 0 < float(rows) < np.inf:
        raise ValueError(f"covariance_prior must be a positive number of rows, got {rows!r}.")
    return float(rows), covariance


def _checked_prior(prior: Any, n_features: int) -> tuple[float | None, FloatArray | None]:
    """The rows and the covariance, (M, M) or (M,), of a prior; None where they are not given."""
    rows, covariance = prior or (None, None)
    if covariance is None:
        return rows, None
    if np.ndim(covariance) == 1:
        return rows, check_covariances([covariance], structure_of("diag"), 1, n_features)[0]
    return rows, check_covariances(covariance, structure_of("tied"), 1, n_features)


def prior_of_columns(prior: Any, columns: list[int], n_features: int) -> tuple[float, FloatArray]:
    """A prior (rows, covariance) on the covariances of M features, of some of these features."""
    rows, covariance = _checked_prior(_given_prior(prior), n_features)
    assert rows is not None
    assert covariance is not None
    return rows, covariance[columns] if covariance.ndim == 1 else covariance[np.ix_(columns, columns)]


def thawed(start: Any) -> Any:
    """The estimator inside scikit-learn's FrozenEstimator; other starts unchanged."""
    return start.estimator if isinstance(start, FrozenEstimator) else start


def refuse_low_rank(covariance_type: Any) -> None:
    """Refuse 'low_rank' and ('low_rank', q), which earlier versions had, with what to use instead."""
    name = covariance_type[:1] if isinstance(covariance_type, tuple) else (covariance_type,)
    if name == ("low_rank",):
        raise ValueError(
            f"covariance_type={covariance_type!r} is not supported any more: principal components before the "
            "model classify better. Use make_pipeline(PCA(n), ...) with another covariance_type, or "
            "SharedKernelClassifierCV, which tries such projections itself."
        )


def is_wide(n_rows: int, n_features: int) -> bool:
    """Whether there are too many features for full covariances."""
    return n_features > max(n_rows, _MANY_FEATURES)


def device_and_precision(device: str | None) -> tuple[str | None, str]:
    """The name of the device, None for the CPU, and the precision of sums over rows on it."""
    if device is None:
        return None, "float64"
    name, _, precision = device.partition("/")
    precision = precision or "float64"
    if not name or precision not in _PRECISIONS:
        raise ValueError(
            f"device={device!r} is not of the form 'cuda:0' or 'cuda:0/float32'; precisions are "
            f"{', '.join(_PRECISIONS)}."
        )
    if name == "cpu" and precision != "float64":
        raise ValueError(
            f"device={device!r}: {precision} is for accelerators only; the CPU computes in float64."
        )
    return None if name == "cpu" else name, precision


def threads_of(n_jobs: int | None) -> int:
    """The number of threads; for None that of joblib's context, one in its workers, else of OpenMP."""
    backend, of_context = get_active_backend()
    if n_jobs is not None or of_context is not None or backend.nesting_level:
        return int(effective_n_jobs(n_jobs))
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(int(limit), cpu_count()) if limit.isdecimal() and int(limit) else int(cpu_count())
