"""Save estimators in files, and read them without running code.

The same checks run before a file is written and after it is read, so that every saved file can be loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from ..data.encoding import feature_names
from ..data.recipe import Recipe, check_preparation
from ..engine.structures import structure_of
from .arguments import check_covariances, check_feature_sets
from .checks import OF_CALLBACKS
from .files import Record, pack, read_file, unpack, write_file
from .fitted import (
    HUGE,
    FitRecord,
    Fitted,
    FittedBayesian,
    FittedClassifier,
    FittedClassifierSearch,
    FittedGaussian,
    FittedMixtureSearch,
    RowsOfFit,
)
from .settings import Settings, device_and_precision, refuse_low_rank

# Attributes that scikit-learn sets.
_OF_SCIKIT_LEARN = ("_skl_callbacks", "_sklearn_output_config", "_metadata_request", *OF_CALLBACKS)
# Errors that inconsistent values in a file may raise.
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)


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
        requests and `set_output` are not saved. `preparation_`, how values of files or data frames are
        transformed and encoded, is saved. You may set `metadata_`, a dictionary of plain values, which is
        saved too.

        Examples
        --------
        >>> from skmix import GaussianMixture, load
        >>> model = GaussianMixture().fit([[0.0], [1.0], [2.0]])
        >>> model.save("model.skmix")  # doctest: +SKIP
        >>> load("model.skmix").means_  # doctest: +SKIP
        array([[1.]])
        """
        write_file(path, *pack(record_of(self)))


def record_of(estimator: Any) -> Record:
    """Return the record of a fitted estimator; raise an error if `estimator_of` would refuse it."""
    name = type(estimator).__name__
    if _class_of(name) is not type(estimator):
        raise TypeError(f"{name} cannot be saved; {', '.join(_KINDS)} can.")
    check_is_fitted(estimator)
    estimator._validate_params()
    try:
        _check(estimator)
        record = _record_of(estimator)
        pack(record)
    except (ValueError, TypeError) as error:
        raise type(error)(f"This {name} cannot be saved: {str(error).rstrip('.')}.") from None
    return record


def _class_of(name: Any) -> Any:
    """Return the class that a file may hold, imported when it is first needed, or None."""
    return getattr(import_module(__package__.partition(".")[0]), name) if name in _KINDS else None


def _record_of(estimator: Any) -> Record:
    """Return the record of an estimator, without checking its attributes."""
    parameters = estimator.get_params(deep=False)
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters.get("cv"), int):
        parameters.pop("cv", None)  # a file cannot hold splitters, and a fitted search does not need them
    attributes = {name: getattr(estimator, name) for name in _attributes_of(estimator)}
    return Record(
        type(estimator).__name__,
        {
            # Estimators among the parameters are saved unfitted.
            "parameters": {
                name: _record_of(clone(value)) if isinstance(value, FileMixin) else value
                for name, value in parameters.items()
            },
            "fitted": {name: _plain(value) for name, value in attributes.items()},
        },
    )


def _attributes_of(estimator: Any) -> list[str]:
    """Return the names of fitted attributes; raise TypeError if the user has set others."""
    parameters, found, known = estimator.get_params(deep=False), [], _known_names(estimator)
    for name in estimator.__dict__:
        if name in known:
            found.append(name)
        elif name not in parameters and name not in _OF_SCIKIT_LEARN:
            advice = "put it into metadata_" if name.endswith("_") else "delete it first"
            raise TypeError(f"{name} is neither a parameter nor an attribute of a fit: {advice}")
    return found


def _plain(value: Any) -> Any:
    if type(value) is list:
        return [_plain(item) for item in value]
    return _record_of(value) if isinstance(value, FileMixin) else value


def read_model(path: str | os.PathLike[str], others: Mapping[str, Callable[[Record], Any]]) -> Any:
    """Return the estimator in a file, or another object by the function in `others` for its kind."""
    content, arrays = read_file(path)
    try:
        record = unpack(content, arrays)
        if not isinstance(record, Record):
            raise ValueError("it is not an estimator")
        return others.get(record.kind, estimator_of)(record)
    except _MALFORMED as error:
        raise ValueError(f"{os.fspath(path)} holds no valid model: {str(error).rstrip('.')}.") from None


def estimator_of(record: Record) -> Any:
    """Return the estimator of a record; raise an error if it is invalid."""
    estimator = _estimator_of(record)
    with np.errstate(all="ignore"):  # invalid numbers are refused below
        _check(estimator)
    return estimator


def _estimator_of(record: Record) -> Any:
    """Return the estimator of a record, without checking its attributes."""
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
    if any(isinstance(value, Record) and value.fields.get("fitted") for value in parameters.values()):
        raise ValueError("a parameter is a fitted estimator")
    estimator = kind(**{name: _restored(value) for name, value in parameters.items()})
    estimator._validate_params()
    known = _known_names(estimator)
    for name, value in fitted.items():
        if name not in known:
            raise ValueError(f"{name!r} is not an attribute of a fitted {record.kind}")
        setattr(estimator, name, _restored(value))
    return estimator


def _restored(value: Any) -> Any:
    if type(value) is list:
        return [_restored(item) for item in value]
    return _estimator_of(value) if isinstance(value, Record) else value


# ---------------------------------------------------------------- checks of fitted attributes

# Parts of a feature map; the last three may be None.
_MAP = ("shift", "scale", "powers", "curves", "offset", "matrix")


def _require(valid: Any, problem: str) -> None:
    if not valid:
        raise ValueError(problem)


def _check(model: Any) -> None:
    record, check_agreement = _KINDS[type(model).__name__]
    present = set(_attributes_of(model))
    for name in (*record.missing(present), *RowsOfFit.missing(present)):
        raise ValueError(f"{name} is missing")
    sizes: dict[str, int] = {}
    for name, each in _known_names(model).items():
        if name in present:
            _check_value(name, getattr(model, name), each.metadata, sizes)
    names, kinds = getattr(model, "feature_names_in_", None), None
    if hasattr(model, "preparation_"):
        check_preparation(model.preparation_, [] if names is None else names.tolist())
        kinds = model.preparation_.get("columns")
    if kinds is None:
        n_columns = sizes.setdefault("M", model.n_features_in_)
    else:
        n_columns, n_features = len(kinds), len(feature_names(kinds))
        agrees = sizes.setdefault("M", n_features) == n_features
        _require(agrees, f"the columns of preparation_ have {n_features} features, not {sizes['M']}")
    _require(model.n_features_in_ == n_columns, f"n_features_in_ is not {n_columns}")
    if names is not None:
        named = names.shape == (n_columns,) and all(isinstance(name, str) for name in names)
        _require(named and len(set(names)) == n_columns, f"feature_names_in_ are not {n_columns} names")
    device_and_precision(getattr(model, "device", None))
    check_agreement(model, sizes)


def _check_value(name: str, value: Any, expected: Mapping[str, Any], sizes: dict[str, int]) -> None:
    """Check the type, shape and range of an attribute; `sizes` are the sizes of axes, by letter."""
    kind, axes, bounds = expected["kind"], expected["axes"], expected["bounds"]
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    _require(right, f"{name} is a {type(value).__name__}")
    if axes is not None:
        _check_shape(name, value, axes, sizes)
    if bounds is not None:
        _check_range(name, value, *bounds)
    if expected["sums"]:
        sums = np.ravel(value.sum(axis=0, dtype=np.float64))
        worst = sums[np.argmax(np.abs(sums - 1.0))]
        tolerance = 1e-4 if value.dtype == np.float32 else 1e-6
        _require(abs(worst - 1.0) <= tolerance, f"{name} must sum to one, got a sum of {worst:.6g}")


def _check_shape(name: str, array: np.ndarray, axes: str, sizes: dict[str, int]) -> None:
    _require(array.dtype in (np.float64, np.float32), f"{name} is of type {array.dtype}")
    named = {axis: n for axis, n in zip(axes, array.shape, strict=False) if axis.isupper()}
    if array.ndim != len(axes) or any(n == 0 or sizes.setdefault(axis, n) != n for axis, n in named.items()):
        shape = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
        raise ValueError(f"{name} has shape {array.shape}, not ({shape})")


def _check_range(name: str, values: Any, lowest: float, highest: float) -> None:
    """Refuse NaN and numbers outside a closed interval."""
    values = np.asarray(values, dtype=np.float64)  # float32 could not hold the bounds
    for wrong in values[~((values >= lowest) & (values <= highest))][:1]:
        why = f"between {lowest:g} and {highest:g}" if np.isfinite(wrong) else "a finite number"
        raise ValueError(f"{name} has {wrong}, which is not {why}")


def _check_mixture(model: Any, sizes: dict[str, int]) -> None:
    fitted = Fitted.of(model)
    assert fitted is not None
    refuse_low_rank(fitted.covariance_type)
    for name, setting, found in (
        ("covariance_type", model.covariance_type, fitted.covariance_type),
        (
            "tail",
            "t" if Settings.of(model).is_robust else None,
            None if fitted.kernel_degrees is None else "t",
        ),
    ):
        _require(setting in ("auto", found), f"{name} is {setting!r}, but {found!r} was fitted: fit again")
    labels, n_classes = fitted.classes, sizes["L"]
    _require(labels.shape == (n_classes,), f"classes_ has shape {labels.shape}, not ({n_classes},)")
    plain = labels.dtype.kind in "biufU" or all(isinstance(label, str | Real) for label in labels)
    _require(plain, "classes_ has labels that are neither numbers nor text")
    # NaN is neither greater than another label nor equal to itself.
    ordered = np.all(labels[1:] > labels[:-1]) and labels[0] == labels[0]
    _require(ordered, f"classes_ are not sorted and distinct: {labels[:5].tolist()}")
    _check_covariances(fitted.covariances, fitted.covariance_type, sizes)


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
    for part, n_features in zip(parts, widths, strict=True):
        _require(type(part).__name__ == kind, f"{name} has a {type(part).__name__}")
        _check(part)
        n_own, classes = Recipe.of(part).n_features, parts[0].classes_
        _require(n_own == n_features, f"a model in {name} has {n_own} features for {n_features} columns")
        same = part.classes_.dtype == classes.dtype and np.array_equal(part.classes_, classes)
        _require(same, f"models in {name} have different classes")


def _check_gaussian(model: Any, sizes: dict[str, int]) -> None:
    _check_covariances(model.covariances_, model.covariance_type, sizes)
    axes = dict(zip("ABC", model.covariances_.shape, strict=False))
    for name in ("precisions_cholesky_", "precisions_"):
        _check_shape(name, getattr(model, name), "".join(axes), axes)
        _check_range(name, getattr(model, name), -HUGE, HUGE)


def _check_bayesian(model: Any, sizes: dict[str, int]) -> None:
    _check_gaussian(model, sizes)
    kind, n_kernels, n_features = model.covariance_type, sizes["K"], sizes["M"]
    process = model.weight_concentration_prior_type == "dirichlet_process"
    of_prior = {"diag": (n_features,), "spherical": ()}
    for name, shape in (
        ("weight_concentration_", (2, n_kernels) if process else (n_kernels,)),
        ("degrees_of_freedom_", () if kind == "tied" else (n_kernels,)),
        ("covariance_prior_", of_prior.get(kind, (n_features, n_features))),
    ):
        value = np.asarray(getattr(model, name))
        _require(value.shape == shape, f"{name} has shape {value.shape}, not {shape}")
        _require(value.dtype.kind == "f" or not shape, f"{name} is of type {value.dtype}")
    _check_range("degrees_of_freedom_", model.degrees_of_freedom_, n_features - 1.0, HUGE)


def _check_search(search: Any, sizes: dict[str, int]) -> None:
    results = search.cv_results_
    n_candidates = len(results["params"])
    _require(search.best_index_ < n_candidates, "best_index_ is not that of a candidate in cv_results_")
    for name, column in results.items():
        right = name == "params" or (isinstance(column, np.ndarray) and column.shape == (n_candidates,))
        _require(right, f"{name} of cv_results_ is not a column of {n_candidates} candidates")
    n_features = sizes["M"]
    if is_classifier(search):
        widths = [_width_of(each, n_features) for each in search.feature_maps_]
        name, kind = "classifiers_", "SharedKernelClassifier"
    else:
        widths, name, kind = [n_features] * sizes["S"], "mixtures_", "SharedKernelMixture"
    parts = getattr(search, name)
    _require(0 < len(parts) == len(widths), f"{name} has {len(parts)} members, not {len(widths)}")
    _check_parts(name, parts, kind, widths)


def _width_of(feature_map: Any, n_features: int) -> int:
    if feature_map is None:
        return n_features
    right = isinstance(feature_map, tuple) and len(feature_map) == len(_MAP)
    right = right and all(isinstance(part, np.ndarray | None) for part in feature_map)
    _require(right, f"feature_maps_ must have None or tuples of {', '.join(_MAP)}")
    return n_features if feature_map[-1] is None else int(feature_map[-1].shape[1])


# For each class in a file, whose subclasses cannot be saved: the record of its fit, and the check that
# attributes are consistent.
_KINDS: dict[str, tuple[type[FitRecord], Callable[[Any, dict[str, int]], None]]] = {
    "SharedKernelMixture": (Fitted, _check_mixture),
    "SharedKernelClassifier": (FittedClassifier, _check_classifier),
    "GaussianMixture": (FittedGaussian, _check_gaussian),
    "BayesianGaussianMixture": (FittedBayesian, _check_bayesian),
    "SharedKernelClassifierCV": (FittedClassifierSearch, _check_search),
    "SharedKernelMixtureCV": (FittedMixtureSearch, _check_search),
}


def _known_names(model: Any) -> dict[str, Any]:
    return RowsOfFit.names() | _KINDS[type(model).__name__][0].names()
