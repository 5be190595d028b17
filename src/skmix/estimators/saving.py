"""Model files, which `load` reads without running code.

The same checks run before a file is written and after one is read, so that nothing is saved that could not be
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted

from .. import _version
from ..engine.frame import FARTHEST, frame_of
from ..engine.refine.online import resume
from ..engine.structures import structure_of
from ..io import Record, decode, encode, read, write
from ..io.preparation import check_preparation
from ._settings import (
    check_covariance_prior,
    check_covariance_type,
    check_covariances,
    check_feature_sets,
    check_tail,
)
from .decisions import check_outlier_label
from .fitted import (
    HUGE,
    SQUARABLE,
    TINY,
    FitRecord,
    Fitted,
    FittedClassifier,
    FittedClassifierSearch,
    FittedGaussian,
    FittedMixtureSearch,
    RowsOfFit,
)
from .rows import device_and_precision, host_copy

if TYPE_CHECKING:
    pass

Estimator = TypeVar("Estimator", bound=type)

# Classes that a file may hold, by name.
_CLASSES: dict[str, Any] = {}
# Methods whose metadata a user can ask for with `set_fit_request` and the like.
_REQUESTS = ("fit", "partial_fit", "predict", "predict_proba", "score", "transform")
_OUTPUTS = ("default", "pandas", "polars")
# What scikit-learn notes in an estimator.
_OF_SCIKIT_LEARN = ("_skl_callbacks", "_sklearn_output_config", "_metadata_request")
MALFORMED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""Errors that inconsistent values may raise."""
# Precisions must be the inverse of covariances within this, and rounding.
_INVERSE_TOLERANCE = 1e-3


def savable(cls: Estimator) -> Estimator:
    """Let files hold estimators of a class; its subclasses need to be named themselves."""
    _CLASSES[cls.__name__] = cls
    return cls


class FileMixin:
    """Adds `save`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, for `skmix.load` to read.

        The file is safetensors with a versioned header. Reading it runs no code, so that files of others can
        be read safely, unlike pickles. It is written in full before it replaces a file of that name.

        Parameters
        ----------
        path : path-like
            The file to make or to replace, such as ``"model.skmix"``.

        Raises
        ------
        NotFittedError
            Before a fit.
        TypeError
            When a parameter or attribute has a type without a place in the file, and for classes of your own.
        ValueError
            When attributes no longer belong together, or parameters are not valid.

        Notes
        -----
        A `random_state` that is a RandomState instance is saved as None; integers are kept. Callbacks are
        not saved.

        A model that was fitted to files, or to a data frame with columns of text, keeps how these were
        prepared in the attribute `preparation_`, and prepares the files and data frames that it is given in
        the same way.

        The attribute `metadata_` is yours: a dictionary of plain values that you set is saved too. `skmix
        fit` notes the names of the columns of labels and weights there, and the outlier threshold of a model
        without classes.

        Examples
        --------
        >>> from skmix import GaussianMixture, load
        >>> model = GaussianMixture().fit([[0.0], [1.0], [2.0]])
        >>> model.save("model.skmix")  # doctest: +SKIP
        >>> load("model.skmix").means_  # doctest: +SKIP
        array([[1.]])
        """
        content, arrays = encode(record_of(self))
        write(path, content, arrays, _version.__version__)


def record_of(estimator: Any) -> Record:
    """Return a fitted estimator in plain values that `estimator_of` would take; refuse one it would not."""
    name = type(estimator).__name__
    if _CLASSES.get(name) is not type(estimator):
        raise TypeError(f"{name} cannot be saved; {', '.join(sorted(_CLASSES))} can.")
    check_is_fitted(estimator)
    estimator._validate_params()
    model = host_copy(estimator)
    try:
        _CHECKS[name](model)
        record = _record_of(model)
        encode(record)
    except (ValueError, TypeError) as error:
        raise type(error)(f"This {name} cannot be saved: {str(error).rstrip('.')}.") from None
    return record


def _record_of(estimator: Any) -> Record:
    """Return an estimator in plain values."""
    parameters = estimator.get_params(deep=False)
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters.get("cv"), int):
        parameters.pop("cv", None)  # splitters have no place in a file, and a fitted search needs none
    attributes = {name: getattr(estimator, name) for name in _attributes_of(estimator)}
    if "cv_results_" in attributes:
        # Leave out times, so that equal fits make equal files.
        results = attributes["cv_results_"].items()
        attributes["cv_results_"] = {name: column for name, column in results if name != "mean_fit_time"}
    requests = {}
    if hasattr(estimator, "_metadata_request"):
        routing = get_routing_for_object(estimator)
        asked = {method: dict(getattr(routing, method).requests) for method in _REQUESTS}
        requests = {method: metadata for method, metadata in asked.items() if metadata}
    return Record(
        type(estimator).__name__,
        {
            # An estimator that is a parameter is saved unfitted.
            "parameters": {
                name: _record_of(clone(value)) if isinstance(value, FileMixin) else value
                for name, value in parameters.items()
            },
            "fitted": {name: _plain(value) for name, value in attributes.items()},
            "output": getattr(estimator, "_sklearn_output_config", {}),
            "requests": requests,
        },
    )


def _attributes_of(estimator: Any) -> list[str]:
    """Return the names of an estimator's own attributes; refuse any that a file has no place for."""
    parameters, found = estimator.get_params(deep=False), []
    for name in estimator.__dict__:
        if name in _KNOWN_NAMES[type(estimator).__name__]:
            found.append(name)
        elif name not in parameters and name not in _OF_SCIKIT_LEARN:
            advice = "what you note belongs in metadata_" if name.endswith("_") else "delete it first"
            raise TypeError(f"{name} is neither a parameter nor an attribute of a fit; {advice}")
    return found


def _plain(value: Any) -> Any:
    if type(value) is list:
        return [_plain(item) for item in value]
    return _record_of(value) if isinstance(value, FileMixin) else value


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : path-like
        A file, from any source: reading it runs no code.

    Returns
    -------
    estimator
        Equal to the one that was saved: the same class, parameters and fitted attributes (but for
        `mean_fit_time` of a search), and on the same machine the same predictions to the last bit.

    Raises
    ------
    OSError
        When the file cannot be read.
    ValueError
        When it is not a model, truncated, damaged, of a later version of the format, or when its parts do not
        belong together.

    Examples
    --------
    >>> from skmix import load
    >>> classifier = load("model.skmix")  # doctest: +SKIP
    """
    return read_model(path, {})


def read_model(path: str | os.PathLike[str], others: Mapping[str, Callable[[Record], Any]]) -> Any:
    """Return the estimator of a file, or the object that one of `others` makes of a record of its kind."""
    content, arrays = read(path)
    try:
        record = decode(content, arrays)
        if not isinstance(record, Record):
            raise ValueError("it is not an estimator")
        return others.get(record.kind, estimator_of)(record)
    except MALFORMED as error:
        raise ValueError(f"{os.fspath(path)} holds no valid model: {str(error).rstrip('.')}.") from None


def estimator_of(record: Record) -> Any:
    """Return the estimator of a record, checked; raise one of `MALFORMED` if it is none."""
    estimator = _estimator_of(record)
    with np.errstate(all="ignore"):  # of numbers that are then refused
        _CHECKS[record.kind](estimator)
    return estimator


def _estimator_of(record: Record) -> Any:
    """Return the estimator of a record; its attributes are still to be checked."""
    kind = _CLASSES.get(record.kind)
    if kind is None:
        raise ValueError(f"its class is {record.kind!r}, known are {', '.join(sorted(_CLASSES))}")
    parts: list[Any] = [record.fields.get(part) for part in ("parameters", "fitted", "output", "requests")]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("its parameters or fitted attributes are missing")
    parameters, fitted, output, requests = parts
    # Parameters that are newer than the file have their defaults.
    unknown = set(parameters) - set(kind._get_param_names())
    if unknown:
        raise ValueError(f"{record.kind} has no parameter {min(unknown)!r}; a later version may")
    if any(isinstance(value, Record) and value.fields.get("fitted") for value in parameters.values()):
        raise ValueError("a parameter is a fitted estimator")
    estimator = kind(**{name: _restored(value) for name, value in parameters.items()})
    estimator._validate_params()
    for name, value in fitted.items():
        if name not in _KNOWN_NAMES[record.kind]:
            raise ValueError(f"{name!r} is not an attribute of a fitted {record.kind}")
        setattr(estimator, name, _restored(value))
    if output:
        if set(output) != {"transform"} or output["transform"] not in _OUTPUTS:
            raise ValueError(f"its output is set to {output!r}")
        estimator.set_output(**output)
    with config_context(enable_metadata_routing=True):
        for method, metadata in requests.items():
            request = getattr(estimator, f"set_{method}_request", None) if method in _REQUESTS else None
            if request is None or not isinstance(metadata, dict):
                raise ValueError(f"{record.kind} takes no metadata in {method!r}")
            request(**metadata)
    return estimator


def _restored(value: Any) -> Any:
    if type(value) is list:
        return [_restored(item) for item in value]
    return _estimator_of(value) if isinstance(value, Record) else value


# ---------------------------------------------------------------- consistency of fitted attributes

# Larger powers of clipped values overflow.
_MOST_POWER = 30.0
# Ranges of the state of a stream. Rows are clipped, in units of its scale, and other numbers are of squares.
_SQUARED = FARTHEST**2
_STREAM = {
    "scale": (1.0 / SQUARABLE, SQUARABLE),
    "shift": (-FARTHEST, FARTHEST),
    "variance": (0.0, _SQUARED),
    "bound": (0.0, HUGE),
    "mass": (0.0, 2.0),
    "n_batches": (1, 2**53),
    "n_rows": (TINY, HUGE),
}
# Arrays of a feature map, and their axes; the last three may be missing.
_MAP = {"shift": "M", "scale": "M", "powers": "M", "curves": "CMS", "offset": "M", "matrix": "MQ"}


def _require(valid: Any, problem: str) -> None:
    if not valid:
        raise ValueError(problem)


def _check_attributes(model: Any) -> dict[str, int]:
    """Check types, ranges, shapes and feature names, and return the sizes of axes by letter."""
    present = {name for name in _attributes_of(model)}
    for record in (_RECORDS[type(model).__name__], RowsOfFit):
        for name in record.missing(present):
            raise ValueError(f"{name} is missing")
    sizes: dict[str, int] = {}
    for name, each in _KNOWN_NAMES[type(model).__name__].items():
        if name not in present:
            continue
        kind, axes, bounds = (each.metadata.get(key) for key in ("kind", "axes", "bounds"))
        value = getattr(model, name)
        if axes is not None:
            _check_array(name, value, axes, sizes, *bounds)
            continue
        right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        _require(right, f"{name} is a {type(value).__name__}")
        if bounds is not None:
            _check_range(name, np.asarray(value), *bounds)
    n_features = sizes.setdefault("M", model.n_features_in_)
    _require(
        model.n_features_in_ == n_features,
        f"n_features_in_ is {model.n_features_in_} for {n_features} features",
    )
    rows = RowsOfFit.of(model)
    assert rows is not None
    names = rows.feature_names_in
    if names is not None:
        named = names.shape == (n_features,) and all(isinstance(name, str) for name in names)
        _require(
            named and len(set(names)) == n_features,
            f"feature_names_in_ are not {n_features} names, each once",
        )
    if rows.preparation is not None:
        check_preparation(rows.preparation, n_features, [] if names is None else names.tolist())
    _check_metadata(rows.metadata or {})
    device_and_precision(getattr(model, "device", None))
    return sizes


def _check_metadata(noted: dict[Any, Any]) -> None:
    """Check the entries of `metadata_` that the command line reads; users may store others."""
    compose = noted.get("compose")
    _require(
        not (isinstance(compose, dict) and "transform" in compose),
        "metadata_ has the scale of its files, which is in preparation_ now: fit the model again",
    )
    for name, value, kind in (
        ("target", noted.get("target"), str),
        ("weight", noted.get("weight"), str),
        ("outlier_threshold", noted.get("outlier_threshold"), float),
    ):
        right = value is None or (isinstance(value, kind) and value == value and value != np.inf)
        _require(right, f"{name} of metadata_ is {value!r}")


def _check_range(name: str, values: np.ndarray, lowest: float = -HUGE, highest: float = HUGE) -> None:
    """Check that numbers are between two others, both included; NaN never is."""
    if values.dtype == np.float32:
        values = values.astype(np.float64)  # which has room for the bounds
    wrong = values[~((values >= lowest) & (values <= highest))]
    for first in wrong.flat[:1]:
        what = "has values that are NaN or infinite" if values.ndim else f"is {values}"
        _require(np.isfinite(float(first)), f"{name} {what}")
        positive = lowest == TINY and first < lowest
        why = "not positive" if positive else f"not between {lowest:g} and {highest:g}"
        raise ValueError(f"{name} {'has' if values.ndim else 'is'} {first}, which is {why}")


def _check_array(
    name: str, array: Any, axes: str, sizes: dict[str, int], lowest: float = -HUGE, highest: float = HUGE
) -> None:
    if not isinstance(array, np.ndarray) or array.dtype not in (np.float64, np.float32):
        raise ValueError(f"{name} is of type {getattr(array, 'dtype', type(array).__name__)}")
    named = {axis: n for axis, n in zip(axes, array.shape, strict=False) if axis.isupper()}
    if array.ndim != len(axes) or any(n == 0 or sizes.setdefault(axis, n) != n for axis, n in named.items()):
        shape = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
        raise ValueError(f"{name} has shape {array.shape}, not ({shape})")
    _check_range(name, array, lowest, highest)


def _check_distribution(name: str, values: Any) -> None:
    """Check that the columns of an array sum to one."""
    sums = np.ravel(values.sum(axis=0, dtype=np.float64))
    worst = sums[np.argmax(np.abs(sums - 1.0))]
    if abs(worst - 1.0) > (1e-4 if values.dtype == np.float32 else 1e-6):
        which = f"each column of {name}" if values.ndim > 1 else name
        raise ValueError(f"{which} must sum to one, got a sum of {worst:.6g}")


def _check_double(fitted: FitRecord) -> None:
    """Check that arrays are of double precision, as those of shared kernels always are."""
    for name, value in fitted.attributes().items():
        single = name != "classes_" and getattr(value, "dtype", None) == np.float32
        _require(not single, f"{name} is of type float32")


def _check_mixture(model: Any) -> None:
    sizes, fitted = _check_attributes(model), Fitted.of(model)
    assert fitted is not None
    _check_double(fitted)
    _require(
        check_covariance_type(model.covariance_type)[0] in ("auto", fitted.covariance_type),
        f"covariance_type is {model.covariance_type!r}, but {fitted.covariance_type!r} was fitted: fit again",
    )
    _require(fitted.n_kernels == sizes["K"], f"n_kernels_ is {fitted.n_kernels} for {sizes['K']} kernels")
    _check_distribution("class_prior_", fitted.class_prior)
    _check_distribution("weights_", fitted.weights)
    _check_labels(fitted.classes, sizes["L"])
    _check_covariances(model, fitted.covariance_type, sizes)
    if fitted.prior is not None:
        check_covariance_prior(fitted.prior.covariance_prior, sizes["M"])
        setting = fitted.prior.prior_setting
        _require(setting in ("auto", "weak"), f"prior_setting_ is {setting!r}")
    # Weights alone have a posterior if their prior was learnt by EM.
    whole = fitted.kernel_posterior is not None or fitted.weight_prior is not None
    _require(fitted.weight_posterior is None or whole, "mean_precision_ is missing")
    _require(
        fitted.kernel_posterior is None or fitted.weight_posterior is not None,
        "weight_concentration_ is missing",
    )
    if fitted.history is not None:
        path, status = fitted.history.log_likelihood_path, fitted.history.start_status
        _require(
            path.shape[1] - sizes["L"] in (0, 1),
            f"log_likelihood_path_ has shape {path.shape} for {sizes['L']} classes",
        )
        together = status.shape == fitted.history.start_log_likelihoods.shape
        _require(
            together and set(status.tolist()) <= {"converged", "stopped", "failed"},
            "start_status_ and start_log_likelihoods_ do not belong together",
        )
    if fitted.stream is not None:
        _check_stream(fitted, fitted.stream)
    _check_tails(model, fitted)


def _check_stream(fitted: Fitted, stream: dict[str, Any]) -> None:
    """Check that the state of a stream is one that could be of this model."""
    kind, parameters = fitted.covariance_type, replace(fitted.parameters, class_prior=fitted.class_prior)
    expected = resume(parameters, frame_of(parameters, structure_of(kind)), kind, 1, 1.0).to_dict()
    _require(
        stream.keys() == expected.keys(), f"stream_ has {sorted(map(str, stream))}, not {sorted(expected)}"
    )
    for name, other in expected.items():
        value, what = stream[name], f"{name} of stream_"
        right = isinstance(value, type(other)) and not isinstance(value, bool)
        _require(right, f"{what} is a {type(value).__name__}")
        bounds = _STREAM.get(name, (-_SQUARED, _SQUARED))
        if isinstance(value, np.ndarray):
            axes = "ABC"[: other.ndim]
            _check_array(what, value, axes, dict(zip(axes, other.shape, strict=True)), *bounds)
        else:
            _check_range(what, np.asarray(value), *bounds)


def _check_tails(model: Any, fitted: Fitted) -> None:
    """Check that degrees of freedom and a background are there if the settings say so, and possible."""
    kind, fixed = check_tail(model.tail)
    degrees, box = fitted.kernel_degrees, fitted.background_box
    for name, value, wanted in (
        ("kernel_degrees_", degrees, kind == "t"),
        ("background_weights_", fitted.background_weights, kind == "background"),
        ("background_box_", box, kind == "background"),
    ):
        there = "is missing" if wanted else "was fitted"
        _require((value is not None) == wanted, f"{name} {there}, with tail={model.tail!r}")
    if degrees is not None and fixed is not None:
        _require(np.all(degrees == fixed), f"kernel_degrees_ has {degrees.min()}, with tail={model.tail!r}")
    if box is not None:
        right = len(box) == 2 and np.all((box[0] < box[1]) & (box[1] - box[0] < np.inf))
        _require(right, "background_box_ has no volume")


def _check_labels(labels: np.ndarray, n_classes: int) -> None:
    """Check that the labels of the classes are sorted and distinct."""
    _require(labels.shape == (n_classes,), f"classes_ has shape {labels.shape}, not ({n_classes},)")
    plain = labels.dtype.kind in "biufU" or all(isinstance(label, str | Real) for label in labels)
    _require(plain, "classes_ has labels that are neither numbers nor text")
    try:
        # NaN is neither greater than another label nor equal to itself.
        ordered = bool(np.all(labels[1:] > labels[:-1]) and labels[0] == labels[0])
    except TypeError as error:
        raise ValueError(f"classes_ has labels that cannot be compared: {error}") from None
    _require(ordered, f"classes_ are not sorted and distinct: {labels[:5].tolist()}")


def _check_covariances(model: Any, covariance_type: str, sizes: dict[str, int]) -> None:
    array, structure = model.covariances_, structure_of(covariance_type)
    _require(array.dtype in (np.float64, np.float32), f"covariances_ is of type {array.dtype}")
    if array.ndim == 3 and array.shape[-1] > 1:
        structure = structure.of(array)
    check_covariances(array, structure, sizes["K"], sizes["M"])


def _check_classifier(model: Any) -> None:
    _check_attributes(model)
    fitted = FittedClassifier.of(model)
    assert fitted is not None
    models, sets = fitted.models, check_feature_sets(fitted.feature_sets, model.n_features_in_, None)
    _require(len(sets) == len(models), f"it has {len(models)} models for {len(sets)} feature sets")
    for number, (columns, part) in enumerate(zip(sets, models, strict=True)):
        name = f"the model of feature set {number}"
        _check_part(part, "SharedKernelMixture", len(columns), name)
        classes = models[0].classes_
        same = part.classes_.dtype == classes.dtype and np.array_equal(part.classes_, classes)
        _require(same, f"{name} has other classes")
    _check_double(fitted)
    _check_array("class_prior_", fitted.class_prior, "L", {"L": len(models[0].classes_)})
    _check_distribution("class_prior_", fitted.class_prior)
    if fitted.tuned is not None:
        _check_tuned(fitted.tuned)
    check_outlier_label(model.outlier_label, models[0].classes_, rejects=fitted.threshold > -np.inf)


def _check_tuned(tuned: dict[str, Any]) -> None:
    """Check the scores of held-out rows before and after tuning, and of its rounds."""
    names = ("log_loss", "error", "log_likelihood", "temperature")
    match tuned:
        case {"trade_off": float() | None, "before": before, "after": after, "rounds": list(rounds)} if (
            len(tuned) == 4
            and all(each is None or _are_numbers(each, names) for each in (before, after))
            and all(_are_numbers(each, ("trade_off", *names)) for each in rounds)
        ):
            return
    raise ValueError("tuned_ is not a record of tuning")


def _are_numbers(values: Any, names: Iterable[str]) -> bool:
    """Return whether values are a dict of floating-point numbers with these names."""
    return (
        isinstance(values, dict)
        and values.keys() == set(names)
        and all(isinstance(number, float) and number == number for number in values.values())
    )


def _check_part(part: Any, kind: str, n_features: int, name: str) -> None:
    """Check an estimator inside another, which gives it some features."""
    _require(type(part).__name__ == kind, f"{name} is a {type(part).__name__}")
    _CHECKS[kind](part)
    n_own = part.n_features_in_
    _require(n_own == n_features, f"{name} has {n_own} features for {n_features} columns")


def _check_gaussian(model: Any) -> None:
    sizes = _check_attributes(model)
    _check_distribution("weights_", model.weights_)
    _check_covariances(model, model.covariance_type, sizes)
    numbers = all(isinstance(bound, float) and bound == bound for bound in model.lower_bounds_)
    _require(numbers, "lower_bounds_ are not all numbers")
    axes = dict(zip("ABC", model.covariances_.shape, strict=False))
    for name in ("precisions_cholesky_", "precisions_"):
        _check_array(name, getattr(model, name), "".join(axes), axes)
    # U (B, M, M) belongs to P and P⁻¹ = UUᵀ, as closely as their conditioning allows. Without
    # covariances, matrices are (B, 1, 1).
    n_features = sizes["M"]
    order = n_features if structure_of(model.covariance_type).n_second(n_features) > n_features else 1
    covariances, roots, precisions = (
        array.astype(np.float64).reshape(-1, order, order)
        for array in (model.covariances_, model.precisions_cholesky_, model.precisions_)
    )
    positive = np.all(np.diagonal(roots, axis1=1, axis2=2) > 0)
    _require(positive, "precisions_cholesky_ has a diagonal that is not positive")
    transposed = np.swapaxes(roots, 1, 2)
    error = np.abs(roots @ transposed - precisions)
    right = np.all(error <= _INVERSE_TOLERANCE * (np.abs(roots) @ np.abs(transposed)))
    _require(right, "precisions_ are not the squares of precisions_cholesky_")
    # Variance inflation, P_ii (P⁻¹)_ii, is what rounding is multiplied by; attributes may be float32.
    inflation = np.einsum("bdd,bdd->bd", covariances, precisions).max(axis=1)
    allowed = _INVERSE_TOLERANCE + 8 * order * np.finfo(np.float32).eps * inflation
    error = np.abs(transposed @ covariances @ roots - np.eye(order))
    _require(np.all(error <= allowed[:, None, None]), "precisions_cholesky_ does not belong to covariances_")


def _check_search(search: Any) -> None:
    """Check a search, its models and their feature maps."""
    n_features = _check_attributes(search)["M"]
    _check_results(search)
    of_classes = is_classifier(search)
    name, other = ("classifiers_", "feature_maps_") if of_classes else ("mixtures_", "shares_")
    parts, others = getattr(search, name), getattr(search, other)
    right = len(parts) and len(others) == len(parts)
    _require(right, f"{name} and {other} differ in length, or are empty")
    if not of_classes:
        _check_distribution("shares_", others)
    for number, part in enumerate(parts):
        if of_classes:
            _check_part(part, "SharedKernelClassifier", _width_of(others[number], n_features, number), name)
        else:
            _check_part(part, "SharedKernelMixture", n_features, name)
        same = part.classes_.tolist() == parts[0].classes_.tolist()
        _require(same, f"{name} differ in their classes")


def _check_results(search: Any) -> None:
    """Check the table of candidates, and that the best one is in it."""
    results, index, best = search.cv_results_, search.best_index_, search.best_score_
    params, scores = results.get("params"), results.get("mean_test_score")
    if not isinstance(params, list) or not all(isinstance(each, dict) for each in params):
        raise ValueError("params of cv_results_ are not a list of dicts")
    for name, column in results.items():
        kinds = "U" if name == "stage" else "biuf" if not name.startswith("param_") else "biufUO"
        right = (
            isinstance(column, np.ndarray) and column.shape == (len(params),) and column.dtype.kind in kinds
        )
        _require(
            name == "params" or right, f"{name} of cv_results_ is not a column of {len(params)} candidates"
        )
    if scores is None or index >= len(params) or params[index].keys() != search.best_params_.keys():
        raise ValueError("best_index_ and best_params_ are not those of a candidate in cv_results_")
    same = isinstance(best, float) and np.array_equal(best, scores[index], equal_nan=True)
    _require(same, f"best_score_ is {best!r}, and {scores[index]} in cv_results_")


def _width_of(change: Any, n_features: int, number: int) -> int:
    """Return how many features a map makes of those of rows, after a check of its arrays."""
    if change is None:
        return n_features
    name = f"feature_maps_[{number}]"
    if not isinstance(change, tuple) or len(change) != len(_MAP):
        raise ValueError(f"{name} must be None or a tuple of {', '.join(_MAP)}")
    matrix = change[-1]
    for (part, axes), array in zip(_MAP.items(), change, strict=True):
        # Curves and projection may be missing.
        if {"curves": change[3], "offset": matrix, "matrix": matrix}.get(part, change) is None:
            continue
        highest = _MOST_POWER if part == "powers" else SQUARABLE
        what, sizes = f"the {part} of {name}", {"M": n_features, "C": 2}
        _check_array(what, array, axes, sizes, -highest, highest)
        _require(array.dtype == np.float64, f"{what} is of type {array.dtype}")
    _require(np.all(change[1] != 0), f"the scale of {name} is zero")
    ascending = change[3] is None or np.all(np.diff(change[3][0]) >= 0)
    _require(ascending, f"the knots of the curves of {name} are not in ascending order")
    return n_features if matrix is None else int(matrix.shape[1])


# What a fit leaves in an estimator of each class, and how it is checked.
_RECORDS: dict[str, type[FitRecord]] = {
    "SharedKernelMixture": Fitted,
    "SharedKernelClassifier": FittedClassifier,
    "GaussianMixture": FittedGaussian,
    "SharedKernelClassifierCV": FittedClassifierSearch,
    "SharedKernelMixtureCV": FittedMixtureSearch,
}
_KNOWN_NAMES = {name: RowsOfFit.names() | record.names() for name, record in _RECORDS.items()}
_CHECKS: dict[str, Callable[[Any], None]] = {
    "SharedKernelMixture": _check_mixture,
    "SharedKernelClassifier": _check_classifier,
    "GaussianMixture": _check_gaussian,
    "SharedKernelClassifierCV": _check_search,
    "SharedKernelMixtureCV": _check_search,
}
