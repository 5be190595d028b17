"""Check settings of estimators: tails, tolerances, starts, priors, and features by index or name."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from joblib import cpu_count, effective_n_jobs
from joblib.parallel import get_active_backend

from ..data.recipe import Recipe
from ..engine.records import FloatArray, Parameters
from ..engine.starts import uniform_weights
from ..engine.structures import Structure, structure_of

# Largest number of entries in the covariances of a batch of starts.
NUMBERS_TOGETHER = 1 << 17
# Largest deviation of a sum of probabilities from one.
_SUM_TOLERANCE = 1e-6
# Smallest variance: the squares of rows, divided by a smaller one, overflow.
_LEAST_VARIANCE = 1e-305
# Smallest and largest tolerance of tol='auto', for many rows and for few.
AUTO_TOL = 3e-4, 1e-3
# Full covariances take too long with more features than this, if there are also fewer rows than features.
_MANY_FEATURES = 500


def as_numbers(values: Any, name: str) -> FloatArray:
    """Return a new float64 array."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}.") from None


def check_count(count: Any, what: str, otherwise: str = "") -> None:
    """Raise ValueError, which begins with `what`, unless `count` is an integer of at least one."""
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{what} an integer of at least 1{otherwise}, got {count!r}.")


def check_distribution(values: Any, shape: tuple[int, ...], name: str) -> FloatArray:
    """Return non-negative numbers of this shape, normalised so that columns sum to one."""
    array = as_numbers(values, name)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    wrong = array[~(np.isfinite(array) & (array >= 0))]
    if len(wrong):
        raise ValueError(f"{name} must be finite and not negative, got {wrong[0]}.")
    sums = array.sum(axis=0)
    worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1.0))]
    if abs(worst - 1.0) > _SUM_TOLERANCE:
        which = f"each column of {name}" if array.ndim > 1 else name
        raise ValueError(f"{which} must sum to one, got a sum of {worst:.6g}.")
    return array / sums


def check_covariances(values: Any, structure: Structure, n_kernels: int, n_features: int) -> FloatArray:
    """Return covariances; raise ValueError unless they are symmetric and positive definite."""
    array = as_numbers(values, "covariances")
    shape = structure.shape(n_kernels, n_features)
    if array.shape != shape:
        raise ValueError(
            f"covariances must have shape {shape} for covariance_type={structure.name!r} with {n_kernels} "
            f"kernels and {n_features} features, got {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise ValueError("covariances must be finite.")
    if structure.triangular:
        full = structure.to_full(array[None], n_kernels, n_features)[0]
        deviations = np.sqrt(np.abs(np.diagonal(full, axis1=1, axis2=2)))
        products = deviations[:, :, None] * deviations[:, None, :]
        gaps = np.abs(full - np.swapaxes(full, 1, 2))
        asymmetric = np.any(gaps > 1e-6 * products, axis=(1, 2))
        if asymmetric.any():
            k = int(asymmetric.argmax())
            raise ValueError(
                f"the covariance of kernel {k} is not symmetric: entries differ by {gaps[k].max():.3g}."
            )
        array = 0.5 * (array + np.swapaxes(array, -1, -2))
    # The engine's test of definiteness does not depend on the units of features.
    if not structure.factor(array[None], n_features).usable[0]:
        full = structure.to_full(array[None], n_kernels, n_features)[0]
        # A variance that is not positive counts as an eigenvalue.
        smallest = np.diagonal(full, axis1=1, axis2=2).min(axis=1)
        for k in np.flatnonzero(smallest > 0).tolist():
            deviations = np.sqrt(np.diagonal(full[k]))
            smallest[k] = np.linalg.eigvalsh(full[k] / deviations[:, None] / deviations)[0]
        raise ValueError(
            f"the covariance of kernel {smallest.argmin()} is not positive definite: its smallest eigenvalue "
            f"is {smallest.min():.3g}, with features in units of their deviations."
        )
    variances = structure.variances(array[None])
    if not _LEAST_VARIANCE <= variances.min() <= variances.max() < np.inf:
        raise ValueError(
            f"covariances have variances from {variances.min():.3g} to {variances.max():.3g}, which are too "
            "far from one for sums of squares: rescale the features."
        )
    return array


def is_wide(n_rows: int, n_features: int) -> bool:
    """Return whether there are too many features for full covariances."""
    return n_features > max(n_rows, _MANY_FEATURES)


def refuse_low_rank(covariance_type: Any) -> None:
    """Refuse 'low_rank' and ('low_rank', q), which earlier versions had, with what to use instead."""
    name = covariance_type[:1] if isinstance(covariance_type, tuple) else (covariance_type,)
    if name == ("low_rank",):
        raise ValueError(
            f"covariance_type={covariance_type!r} is not supported any more: principal components before the "
            "model classify better. Use make_pipeline(PCA(n), ...) with another covariance_type, or "
            "SharedKernelClassifierCV, which tries such projections itself."
        )


def fitted_start(init: Any) -> Any:
    """Return the fitted model that a start is; None for a name or dicts. Refuse one that is not fitted."""
    if isinstance(init, str | Mapping | list):
        return None
    if not hasattr(init, "class_prior_"):
        raise ValueError(f"init is a {type(init).__name__} that is not fitted.")
    return init


def covariance_type_of(model: Any, n_rows: int, n_features: int) -> str:
    """Return the name of a mixture's covariance type; 'auto' depends on the start and on the rows."""
    name: str = model.covariance_type
    if name != "auto":
        return name
    fitted = fitted_start(model.init)
    if fitted is not None:
        return str(fitted.covariance_type_)
    given = isinstance(model.init, Mapping) and model.init.get("covariances") is not None
    return "diag" if is_wide(n_rows, n_features) and not given else "full"


def check_tail(tail: Any) -> tuple[str | None, float | None]:
    """Return the kind of tail, None or 't', and the degrees of freedom if they are given."""
    if tail is None or isinstance(tail, str):
        return tail, None
    degrees = tail[1] if len(tail) == 2 and tail[0] == "t" else None
    if not isinstance(degrees, Real) or isinstance(degrees, bool) or not 1.0 <= float(degrees) < np.inf:
        raise ValueError(
            f"tail must be None, 't' or ('t', degrees), with degrees of at least 1, got {tail!r}."
        )
    return "t", float(degrees)


def is_robust(model: Any) -> bool:
    """Return whether a model has t kernels. Such models run on the CPU."""
    return check_tail(getattr(model, "tail", None))[0] is not None


def check_tol(tol: Any) -> tuple[str, float]:
    """Return the stopping rule, 'total' or 'per-class', and its tolerance: of 'auto', the smallest."""
    if tol == "auto":
        return "total", AUTO_TOL[0]
    if isinstance(tol, tuple):
        rule, value = tol if len(tol) == 2 else (None, None)
        number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else -1.0
        if rule == "per-class" and number >= 0.0:
            return "per-class", number
        raise ValueError(f"tol as a tuple is ('per-class', tolerance), got {tol!r}.")
    return "total", float(tol)


def freeze_of(model: Any) -> str | None:
    """Return the parameters that a given start keeps fixed: 'kernels', 'weights' or None."""
    starts = model.init if isinstance(model.init, list) else [model.init]
    found = {start.get("freeze") for start in starts if isinstance(start, Mapping)} or {None}
    if len(found) > 1:
        raise ValueError(f"init has starts with different values of 'freeze': {sorted(map(str, found))}.")
    freeze = found.pop()
    if freeze not in (None, "kernels", "weights"):
        raise ValueError(f"freeze in init must be 'kernels' or 'weights', got {freeze!r}.")
    return freeze


def is_robust_fit(model: Any) -> bool:
    """Return whether a model was fitted with t kernels, whatever its settings are now."""
    return any(hasattr(each, "kernel_degrees_") for each in getattr(model, "models_", [model]))


def check_start(
    start: Mapping[str, Any],
    structure: Structure,
    n_kernels: int | None,
    n_classes: int,
    default_covariance: FloatArray,
) -> Parameters:
    """Return the start in a dict of `means` (K, M), `covariances` and `weights` (K, L).

    Only means are required. Covariances default to `default_covariance` (M,), the variances of the features,
    over K^(2/M), and weights to uniform ones; those of one class may have shape (K,). Without `n_kernels`,
    the means determine K.
    """
    unknown = set(start) - {"means", "covariances", "weights", "freeze"}
    if unknown or "means" not in start:
        raise ValueError(
            "init as a dict needs 'means' and may have 'covariances', 'weights' and 'freeze', got the keys "
            f"{sorted(map(str, start))}."
        )
    n_features = len(default_covariance)
    means = as_numbers(start["means"], "means")
    expected = "n_kernels" if n_kernels is None else n_kernels
    if means.ndim != 2 or means.shape[1] != n_features or len(means) != (n_kernels or len(means) or -1):
        raise ValueError(f"means must have shape ({expected}, {n_features}), got {means.shape}.")
    if not np.all(np.isfinite(means)):
        raise ValueError("means must be finite.")
    n_kernels = len(means)
    if start.get("covariances") is None:
        common = structure.common(default_covariance / n_kernels ** (2.0 / n_features))
        covariances = structure.from_common(common[None], n_kernels)[0]
    else:
        covariances = check_covariances(start["covariances"], structure, n_kernels, n_features)
    if start.get("weights") is None:
        weights = uniform_weights(1, n_kernels, n_classes)[0]
    else:
        weights = as_numbers(start["weights"], "weights")
        weights = weights[:, None] if weights.ndim == n_classes == 1 else weights
        weights = check_distribution(weights, (n_kernels, n_classes), "weights")
    return Parameters(weights, means, covariances)


def indices_of(given: Iterable[Any], columns: Recipe, where: str, *, once: bool = True) -> list[int]:
    """Return the indices of columns given by index or name, without repetition if `once`.

    Errors call the given columns `where`.
    """
    # Sets have no order, and generators can be read only once.
    if isinstance(given, (str, Mapping)) or not hasattr(given, "__getitem__"):
        raise ValueError(f"{where} must be a list of columns, got {given!r}.")
    indices: list[int] = []
    for each in given:
        column = columns.index(each, where)
        if once and column in indices:
            raise ValueError(f"{where} has column {column} more than once.")
        indices.append(column)
    if not indices:
        raise ValueError(f"{where} is empty.")
    return indices


def check_given(given: Mapping[Any, Any], columns: Recipe) -> tuple[list[int], FloatArray]:
    """Return the indices of columns with given values, and the features (1, M), NaN for other columns."""
    if not isinstance(given, Mapping):
        raise ValueError(f"given must be a dict from columns to values, got {given!r}.")
    known = indices_of(list(given), columns, "given")
    if len(known) == len(columns.kinds):
        raise ValueError(f"given has values of all {len(known)} columns: no column is left.")
    row = np.full((1, sum(map(len, columns.features))), np.nan)
    for column, value in zip(known, given.values(), strict=True):
        row[0, columns.features[column]] = columns.encode(column, value)
    return known, columns.to_scale(row)


def check_feature_sets(sets: Sequence[Sequence[Any]], columns: Recipe) -> list[list[int]]:
    """Return the indices of the features in each set of columns; a column is in at most one set."""
    if isinstance(sets, str) or not isinstance(sets, Sequence) or len(sets) == 0:
        raise ValueError(f"feature_sets must be a non-empty list of lists of columns, got {sets!r}.")
    set_of: dict[int, int] = {}
    resolved: list[list[int]] = []
    for number, own in enumerate(sets):
        indices = indices_of(own, columns, f"feature set {number}", once=False)
        for column in indices:
            if column in set_of:
                raise ValueError(
                    f"column {column} is in feature set {set_of[column]} and again in set {number}."
                )
            set_of[column] = number
        resolved.append(columns.features_of(indices))
    return resolved


def threads_of(n_jobs: int | None) -> int:
    """Return the number of threads: for None all cores, or the variable OMP_NUM_THREADS.

    It is that of scikit-learn's own threads. Workers of joblib have one thread.
    """
    if n_jobs is not None:
        return int(effective_n_jobs(n_jobs))
    if get_active_backend()[0].nesting_level:  # in a worker of joblib
        return int(effective_n_jobs(None))
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(int(wanted), cpu_count()) if wanted.isdecimal() and int(wanted) else int(cpu_count())


def check_covariance_prior(prior: Any, n_features: int) -> tuple[float, FloatArray | None]:
    """Return the strength of the inverse-Wishart prior, in rows, and its covariance if it is given."""
    if isinstance(prior, tuple):
        if len(prior) != 2:
            raise ValueError(f"covariance_prior as a tuple is (rows, covariance), got {len(prior)} entries.")
        rows, covariance = prior
        if np.ndim(covariance) == 1:
            scale = check_covariances([covariance], structure_of("diag"), 1, n_features)[0]
        else:
            scale = check_covariances(covariance, structure_of("tied"), 1, n_features)
    else:
        rows, scale = prior, None
    if not isinstance(rows, Real) or not 0 < float(rows) < np.inf:
        raise ValueError(f"covariance_prior must be a positive number of rows, got {rows!r}.")
    return float(rows), scale


def prior_of_columns(prior: Any, columns: list[int], n_features: int) -> tuple[float, FloatArray]:
    """Return the prior on covariances, rows and covariance, of some features."""
    rows, covariance = check_covariance_prior(prior, n_features)
    assert covariance is not None
    return rows, covariance[columns] if covariance.ndim == 1 else covariance[np.ix_(columns, columns)]
