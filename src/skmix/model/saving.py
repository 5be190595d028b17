"""Estimators in model files. The same checks run before one is written and after it is read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from importlib import import_module
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from ..data.encoding import feature_names
from ..data.recipe import Recipe, check_preparation
from ..engine.structures import structure_of
from .arguments import check_covariances, check_feature_sets
from .checks import OF_CALLBACKS
from .files import Record, pack, read_file, unpack, write_file
from .fitted import (
    HUGE,
    SQUARABLE,
    TINY,
    FitRecord,
    Fitted,
    FittedClassifier,
    array,
    check_range,
    check_value,
    typed,
)
from .settings import Settings, device_and_precision, refuse_low_rank, thawed

# Attributes that scikit-learn sets.
_OF_SCIKIT_LEARN = ("_skl_callbacks", "_sklearn_output_config", "_metadata_request", *OF_CALLBACKS)
# Errors that inconsistent values in a file may raise.
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
# Attributes of fits that are no records, as fields. All estimators keep those of the training rows:
# `recipe_` has the encoding of columns, scale and compensation of files, the report sets `quality_`, and
# users set `metadata_`.
_ROWS = {
    "n_features_in_": typed(Integral, low=1),
    "feature_names_in_": typed(default=None),
    "recipe_": typed(dict, default=None),
    "target_name_": typed(str, default=None),
    "weight_name_": typed(str, default=None),
    "ignored_columns_": typed(list, default=None),
    "quality_": typed(dict, default=None),
    "metadata_": typed(dict, default=None),
}
# Those of scikit-learn's mixtures, with axes by setting.
_BY_STRUCTURE = {"full": "KMM", "tied": "MM", "diag": "KM", "spherical": "K"}
_GAUSSIAN = {
    "weights_": array("K", low=0.0, sums=True),
    "means_": array("KM", low=-SQUARABLE, high=SQUARABLE),
    "covariances_": array(_BY_STRUCTURE),
    "precisions_": array(_BY_STRUCTURE),
    "precisions_cholesky_": array(_BY_STRUCTURE),
    "converged_": typed(bool),
    "n_iter_": typed(Integral, low=0),
    "lower_bound_": typed(float, low=-np.inf),
    "lower_bounds_": typed(list),
}
_NUMBER_OR_ARRAY = (np.ndarray, Real)
_BAYESIAN = _GAUSSIAN | {
    "weight_concentration_": array(
        {"dirichlet_process": "pK", "dirichlet_distribution": "K"}, low=TINY, kind=(tuple, np.ndarray)
    ),
    "weight_concentration_prior_": typed(Real, low=TINY),
    "mean_precision_": array("K", low=TINY),
    "mean_precision_prior_": typed(Real, low=TINY),
    "mean_prior_": array("M"),
    "degrees_of_freedom_": array(
        {"full": "K", "tied": "", "diag": "K", "spherical": "K"}, low=TINY, kind=_NUMBER_OR_ARRAY
    ),
    "degrees_of_freedom_prior_": typed(Real, low=TINY),
    "covariance_prior_": array(
        {"full": "MM", "tied": "MM", "diag": "M", "spherical": ""}, kind=_NUMBER_OR_ARRAY
    ),
}
_SEARCH = {
    "best_index_": typed(Integral, low=0),
    "best_params_": typed(dict),
    "best_score_": typed(float),
    "cv_results_": typed(dict),
    "n_untried_": typed(Integral, low=0),
}
_CLASSIFIER_SEARCH = _SEARCH | {
    "classifiers_": typed(list),
    "feature_maps_": typed(list),
    "bag_correlation_": typed(float, low=0.0, high=1.0, default=None),
}
_MIXTURE_SEARCH = _SEARCH | {
    "mixtures_": typed(list),
    "shares_": array("S", low=0.0, sums=True),
    "threshold_": typed(float, low=-np.inf, default=None),
    "outlier_blur_": array("rM", default=None),
}
# Notes that the command line kept in `metadata_` of files of version 1, and their attributes.
_NOTES = {"target": "target_name_", "weight": "weight_name_", "quality": "quality_"}
# Parts of a feature map; the last three may be None.
_MAP = ("shift", "scale", "powers", "curves", "offset", "matrix")


class FileMixin:
    """Adds `save`."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file, for `skmix.load` to read.

        The file is a safetensors file with a versioned header. Unlike a pickle, a file from others is safe to
        read, because reading it runs no code. It replaces an existing file only once it is complete.

        Parameters
        ----------
        path : path-like
            The file to create or replace, such as ``"model.skmix"``.

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        TypeError
            If a file cannot hold the type of a parameter or attribute, and for subclasses.
        ValueError
            If attributes are inconsistent, or parameters are invalid.

        Notes
        -----
        A RandomState instance as `random_state` is saved as None; an integer is kept. Callbacks, metadata
        requests and `set_output` are not saved. You may set `metadata_`, a dictionary of plain values, which
        is saved too, and which skmix does not use.

        Examples
        --------
        >>> from skmix import GaussianMixture, load
        >>> model = GaussianMixture().fit([[0.0], [1.0], [2.0]])
        >>> model.save("model.skmix")  # doctest: +SKIP
        >>> load("model.skmix").means_  # doctest: +SKIP
        array([[1.]])
        """
        write_file(path, *pack(record_of(self)))


def read_model(path: str | os.PathLike[str], others: Mapping[str, Callable[[Record], Any]]) -> Any:
    """The estimator in a file, or another object by the function in `others` for its kind."""
    content, arrays, version = read_file(path)
    try:
        record = unpack(content, arrays)
        record = _of_version_1(record) if version == 1 else record
        if not isinstance(record, Record):
            raise ValueError("it is not an estimator")
        return others.get(record.kind, estimator_of)(record)
    except _MALFORMED as error:
        raise ValueError(f"{os.fspath(path)} holds no valid model: {str(error).rstrip('.')}.") from None


# ---------------------------------------------------------------- estimators to records and back


def record_of(estimator: Any) -> Record:
    """The record of a fitted estimator; raise an error if `estimator_of` would refuse it."""
    name = type(estimator).__name__
    if _class_of(name) is not type(estimator):
        raise TypeError(f"{name} cannot be saved; {', '.join(_KINDS)} can.")
    check_is_fitted(estimator)
    estimator._validate_params()
    try:
        _check(estimator)
        record = _unchecked_record(estimator)
        pack(record)
    except (ValueError, TypeError) as error:
        raise type(error)(f"This {name} cannot be saved: {str(error).rstrip('.')}.") from None
    return record


def estimator_of(record: Record) -> Any:
    """The estimator of a record; raise an error if it is invalid."""
    estimator = _unchecked_estimator(record)
    with np.errstate(all="ignore"):  # invalid numbers are refused below
        _check(estimator)
    return estimator


def _class_of(name: Any) -> Any:
    """The class that a file may hold, imported when it is first needed, or None."""
    return getattr(import_module(__package__.partition(".")[0]), name) if name in _KINDS else None


def _fields_of(estimator: Any) -> dict[str, Any]:
    """The fields of all attributes that a fit may set, by name."""
    fields = _KINDS[type(estimator).__name__][0]
    return _ROWS | (fields if isinstance(fields, dict) else fields.names())


def _attributes_of(estimator: Any) -> dict[str, Any]:
    """The fitted attributes; raise TypeError if the user has set others."""
    parameters, fields = estimator.get_params(deep=False), _fields_of(estimator)
    for name in vars(estimator):
        if name not in fields and name not in parameters and name not in _OF_SCIKIT_LEARN:
            advice = "put it into metadata_" if name.endswith("_") else "delete it first"
            raise TypeError(f"{name} is neither a parameter nor an attribute of a fit: {advice}")
    return {name: value for name, value in vars(estimator).items() if name in fields}


def _unchecked_record(estimator: Any, *, with_start: bool = True) -> Record:
    def plain(value: Any) -> Any:
        if type(value) is list:
            return [plain(item) for item in value]
        return _unchecked_record(value, with_start=False) if isinstance(value, FileMixin) else value

    parameters = {name: thawed(value) for name, value in estimator.get_params(deep=False).items()}
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters.get("cv"), int):
        parameters.pop("cv", None)  # a file cannot hold splitters, and a fitted search does not need them
    for name, value in parameters.items():
        if isinstance(value, FileMixin):
            # A fit goes on from a fitted start; the starts of parts are those of the whole.
            is_start = with_start and name == "init"
            parameters[name] = _unchecked_record(value if is_start else clone(value), with_start=False)
    fitted = {name: plain(value) for name, value in _attributes_of(estimator).items()}
    return Record(type(estimator).__name__, {"parameters": parameters, "fitted": fitted})


def _unchecked_estimator(record: Record) -> Any:
    def restored(value: Any) -> Any:
        if type(value) is list:
            return [restored(item) for item in value]
        return _unchecked_estimator(value) if isinstance(value, Record) else value

    kind = _class_of(record.kind)
    if kind is None:
        raise ValueError(f"its class is {record.kind!r}, not one of {', '.join(_KINDS)}")
    parameters, fitted = (record.fields.get(part) for part in ("parameters", "fitted"))
    if not isinstance(parameters, dict) or not isinstance(fitted, dict):
        raise ValueError("its parameters or fitted attributes are missing")
    # Parameters that the file lacks, because they are newer, have their defaults.
    unknown = set(parameters) - set(kind._get_param_names())
    if unknown:
        raise ValueError(f"{record.kind} has no parameter {min(unknown)!r}; another version may")
    for name, value in parameters.items():
        if isinstance(value, Record) and value.fields.get("fitted") and name != "init":
            raise ValueError(f"{name} is a fitted estimator")
    estimator = kind(**{name: restored(value) for name, value in parameters.items()})
    estimator._validate_params()
    fields = _fields_of(estimator)
    for name, value in fitted.items():
        if name not in fields:
            raise ValueError(f"{name!r} is not an attribute of a fitted {record.kind}")
        setattr(estimator, name, restored(value))
    return estimator


# ---------------------------------------------------------------- files of version 1


def _of_version_1(value: Any) -> Any:
    """A value in a file of version 1, by the names and values of today in all its records."""
    if isinstance(value, list):
        return [_of_version_1(item) for item in value]
    if not isinstance(value, Record):
        return value
    record = Record(value.kind, {name: _of_version_1(item) for name, item in value.fields.items()})
    parameters, fitted = (record.fields.get(part) for part in ("parameters", "fitted"))
    if isinstance(parameters, dict) and isinstance(fitted, dict):
        record.fields["parameters"] = _as_plain_values(parameters)
        record.fields["fitted"] = _renamed({name: _of_version_1(item) for name, item in fitted.items()})
    return record


def _renamed(fitted: dict[str, Any]) -> dict[str, Any]:
    """Fitted attributes, of which some had other names or were notes of the command line."""
    if "preparation_" in fitted:
        fitted["recipe_"] = fitted.pop("preparation_")
    metadata = fitted.pop("metadata_", None)
    notes = {**metadata} if isinstance(metadata, dict) else {}
    for name, attribute in _NOTES.items():
        if (note := notes.pop(name, None)) is not None:
            fitted[attribute] = note
    return fitted | ({"metadata_": notes} if notes else {})


def _as_plain_values(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a file, of which some were pairs of a kind and a number."""
    found = {name: _of_version_1(value) for name, value in parameters.items()}
    for name, number, kind in (("tail", "degrees", "t"), ("tol", "tol", "per-class")):
        value = found.get(name)
        if isinstance(value, list | tuple) and len(value) == 2 and value[0] == kind:
            found |= {"tail" if name == "tail" else "stopping": kind, number: value[1]}
    init = found.get("init")
    starts = [start for start in (init if isinstance(init, list) else [init]) if isinstance(start, dict)]
    if any("freeze" in start for start in starts):
        found["freeze"] = starts[0].get("freeze")
        plain = [{name: value for name, value in start.items() if name != "freeze"} for start in starts]
        found["init"] = plain if isinstance(init, list) else plain[0]
    return found


# ---------------------------------------------------------------- checks of fitted attributes


def _require(valid: Any, problem: str) -> None:
    if not valid:
        raise ValueError(problem)


def _check(model: Any) -> None:
    """Raise an error unless the attributes of a fitted estimator are valid and belong together."""
    fields, attributes = _fields_of(model), _attributes_of(model)
    record, check_agreement = _KINDS[type(model).__name__]
    for name in [*(record if isinstance(record, dict) else record.needed(set(attributes))), *_ROWS]:
        if fields[name].default is MISSING and name not in attributes:
            raise ValueError(f"{name} is missing")
    sizes: dict[str, int] = {}  # of axes, by letter
    settings = [getattr(model, name, None) for name in ("covariance_type", "weight_concentration_prior_type")]
    for name, field in fields.items():
        if name in attributes:
            check_value(name, attributes[name], field.metadata, sizes, settings)
    _check_columns(model, sizes)
    device_and_precision(getattr(model, "device", None))
    check_agreement(model, sizes)
    start = thawed(getattr(model, "init", None))
    if isinstance(start, FileMixin) and hasattr(start, "class_prior_"):
        _check(start)


def _check_columns(model: Any, sizes: dict[str, int]) -> None:
    names, kinds = getattr(model, "feature_names_in_", None), None
    ignored = getattr(model, "ignored_columns_", [])
    _require(all(isinstance(name, str) for name in ignored), "ignored_columns_ are not names")
    if hasattr(model, "recipe_"):
        check_preparation(model.recipe_, [] if names is None else names.tolist())
        kinds = model.recipe_.get("columns")
    if kinds is None:
        n_columns = sizes.setdefault("M", model.n_features_in_)
    else:
        n_columns, n_features = len(kinds), len(feature_names(kinds))
        agrees = sizes.setdefault("M", n_features) == n_features
        _require(agrees, f"the columns of recipe_ have {n_features} features, not {sizes['M']}")
    _require(model.n_features_in_ == n_columns, f"n_features_in_ is not {n_columns}")
    if names is not None:
        named = names.shape == (n_columns,) and all(isinstance(name, str) for name in names)
        _require(named and len(set(names)) == n_columns, f"feature_names_in_ are not {n_columns} names")


def _check_mixture(model: Any, sizes: dict[str, int]) -> None:
    kind, tail = model.covariance_type_, "t" if hasattr(model, "kernel_degrees_") else None
    refuse_low_rank(kind)
    for name, setting, fitted in (
        ("covariance_type", model.covariance_type, kind),
        ("tail", "t" if Settings.of(model).is_robust else None, tail),
    ):
        _require(setting in ("auto", fitted), f"{name} is {setting!r}, but {fitted!r} was fitted: fit again")
    labels, n_classes = model.classes_, sizes["L"]
    _require(labels.shape == (n_classes,), f"classes_ has shape {labels.shape}, not ({n_classes},)")
    plain = labels.dtype.kind in "biufU" or all(isinstance(label, str | Real) for label in labels)
    _require(plain, "classes_ has labels that are neither numbers nor text")
    # NaN is neither greater than another label nor equal to itself.
    ordered = np.all(labels[1:] > labels[:-1]) and labels[0] == labels[0]
    _require(ordered, f"classes_ are not sorted and distinct: {labels[:5].tolist()}")
    _check_covariances(model.covariances_, kind, sizes)


def _check_covariances(array: np.ndarray, covariance_type: str, sizes: dict[str, int]) -> None:
    _require(array.dtype in (np.float64, np.float32), f"covariances_ is of type {array.dtype}")
    check_covariances(array, structure_of(covariance_type), sizes["K"], sizes["M"])


def _check_classifier(model: Any, sizes: dict[str, int]) -> None:
    models, columns = model.models_, Recipe(dict.fromkeys(range(sizes["M"])))
    sets = check_feature_sets(model.feature_sets_, columns)
    _require(len(sets) == len(models), f"it has {len(models)} models for {len(sets)} feature sets")
    _check_parts("models_", models, "SharedKernelMixture", [len(columns) for columns in sets])
    _require(len(models[0].classes_) == sizes["L"], f"class_prior_ has {sizes['L']} classes")


def _check_parts(name: str, parts: list[Any], kind: str, widths: list[int]) -> None:
    """Check the parts of an estimator: their class, labels and numbers of features."""
    for part, width in zip(parts, widths, strict=True):
        _require(type(part).__name__ == kind, f"{name} has a {type(part).__name__}")
        _check(part)
        n_features, classes = Recipe.of(part).n_features, parts[0].classes_
        _require(n_features == width, f"a model in {name} has {n_features} features for {width} columns")
        same = part.classes_.dtype == classes.dtype and np.array_equal(part.classes_, classes)
        _require(same, f"models in {name} have different classes")


def _check_gaussian(model: Any, sizes: dict[str, int]) -> None:
    _check_covariances(model.covariances_, model.covariance_type, sizes)
    if hasattr(model, "degrees_of_freedom_"):
        check_range("degrees_of_freedom_", model.degrees_of_freedom_, sizes["M"] - 1.0, HUGE)
        if model.weight_concentration_prior_type == "dirichlet_process":
            _require(len(model.weight_concentration_) == 2, "weight_concentration_ are not two arrays")


def _check_classifier_search(search: Any, sizes: dict[str, int]) -> None:
    _check_results(search)
    widths = []
    for feature_map in search.feature_maps_:
        width = sizes["M"]
        if feature_map is not None:
            right = isinstance(feature_map, tuple) and len(feature_map) == len(_MAP)
            right = right and all(isinstance(part, np.ndarray | None) for part in feature_map)
            _require(right, f"feature_maps_ must have None or tuples of {', '.join(_MAP)}")
            width = width if feature_map[-1] is None else int(feature_map[-1].shape[1])
        widths.append(width)
    _check_members("classifiers_", search.classifiers_, "SharedKernelClassifier", widths)


def _check_mixture_search(search: Any, sizes: dict[str, int]) -> None:
    _check_results(search)
    widths = [sizes["M"]] * sizes["S"]
    _check_members("mixtures_", search.mixtures_, "SharedKernelMixture", widths)


def _check_members(name: str, members: list[Any], kind: str, widths: list[int]) -> None:
    _require(0 < len(members) == len(widths), f"{name} has {len(members)} members, not {len(widths)}")
    _check_parts(name, members, kind, widths)


def _check_results(search: Any) -> None:
    results = search.cv_results_
    n_candidates = len(results["params"])
    _require(search.best_index_ < n_candidates, "best_index_ is not that of a candidate in cv_results_")
    for name, column in results.items():
        right = name == "params" or (isinstance(column, np.ndarray) and column.shape == (n_candidates,))
        _require(right, f"{name} of cv_results_ is not a column of {n_candidates} candidates")


# For each class in a file, whose subclasses cannot be saved: the fields of its attributes, and the check that
# attributes belong together.
_KINDS: dict[str, tuple[dict[str, Any] | type[FitRecord], Callable[[Any, dict[str, int]], None]]] = {
    "SharedKernelMixture": (Fitted, _check_mixture),
    "SharedKernelClassifier": (FittedClassifier, _check_classifier),
    "GaussianMixture": (_GAUSSIAN, _check_gaussian),
    "BayesianGaussianMixture": (_BAYESIAN, _check_gaussian),
    "SharedKernelClassifierCV": (_CLASSIFIER_SEARCH, _check_classifier_search),
    "SharedKernelMixtureCV": (_MIXTURE_SEARCH, _check_mixture_search),
}
