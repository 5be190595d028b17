"""Estimators as files: model files that `load` reads without running code, and ONNX graphs.

The same checks run before a file is written and after one is read, so that nothing is saved that could not be
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from sklearn import config_context
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted

from .. import _version
from ..engine.covariances import COVARIANCE_TYPES, structure_of
from ..engine.density import frame_of
from ..engine.model import Parameters
from ..engine.sources.summary import FARTHEST
from ..io import Record, decode, encode, read, replacing, write
from ..io.graph import Kernels, build_graph
from ._settings import check_covariance_prior, check_distribution, check_feature_groups
from .rows import host_copy

if TYPE_CHECKING:
    from onnx import ModelProto

Estimator = TypeVar("Estimator", bound=type)

# The only classes that a file can make, by name.
_CLASSES: dict[str, Any] = {}
# Methods whose metadata a user can ask for with `set_fit_request` and the like.
_REQUESTS = ("fit", "partial_fit", "predict", "score", "transform")
_OUTPUTS = ("default", "pandas", "polars")
# Attributes of precision and covariance are each other's inverse to this, and to rounding.
_INVERSE_TOLERANCE = 1e-3


def savable(cls: Estimator) -> Estimator:
    """Let files hold estimators of a class; its subclasses need to be named themselves."""
    _CLASSES[cls.__name__] = cls
    return cls


class SavingMixin:
    """Adds `save`. Everything a fit leaves behind ends in an underscore or is named here."""

    _private_attributes: ClassVar[tuple[str, ...]] = ()

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

        The attribute `metadata_` is yours: a dictionary of plain values that you set is saved too. `skmix
        fit` notes the name of the target column there, and the outlier threshold of a model without classes.

        Examples
        --------
        >>> from skmix import GaussianMixture, load
        >>> model = GaussianMixture().fit([[0.0], [1.0], [2.0]])
        >>> model.save("model.skmix")  # doctest: +SKIP
        >>> load("model.skmix").means_  # doctest: +SKIP
        array([[1.]])
        """
        name = type(self).__name__
        if _CLASSES.get(name) is not type(self):
            raise TypeError(f"{name} cannot be saved; {', '.join(sorted(_CLASSES))} can.")
        check_is_fitted(self)
        self._validate_params()  # type: ignore[attr-defined]
        model = host_copy(self)
        try:
            CHECKS[name](model)
        except ValueError as error:
            raise ValueError(f"This {name} cannot be saved: {error}.") from None
        try:
            content, arrays = encode(_record_of(model))
        except TypeError as error:
            raise TypeError(f"This {name} cannot be saved: {error}") from None
        write(path, content, arrays, _version.__version__)


def _record_of(estimator: Any) -> Record:
    """Return an estimator in plain values."""
    parameters = estimator.get_params(deep=False)
    attributes = {name: value for name, value in vars(estimator).items() if name not in parameters}
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters.get("cv"), int):
        parameters.pop("cv", None)  # splitters have no place in a file, and a fitted search needs none
    request = attributes.pop("_metadata_request", None)
    output = attributes.pop("_sklearn_output_config", {})
    attributes.pop("_skl_callbacks", None)
    for name in attributes:
        if not _is_attribute(type(estimator), name):
            raise TypeError(f"{name} is neither a parameter nor an attribute of a fit; delete it first.")
    return Record(
        type(estimator).__name__,
        {
            "parameters": {name: _plain(value) for name, value in parameters.items()},
            "fitted": {name: _plain(value) for name, value in attributes.items()},
            "output": output,
            "requests": _requests(request),
        },
    )


def _is_attribute(kind: Any, name: str) -> bool:
    """Return whether a fit may leave an attribute of that name in an estimator of that class."""
    if name in kind._private_attributes:
        return True
    return name.isidentifier() and name[0] != "_" and name[-1] == "_" and not hasattr(kind, name)


def _plain(value: Any) -> Any:
    if isinstance(value, SavingMixin):
        return _record_of(value)
    if type(value) is list:
        return [_plain(item) for item in value]
    return value


def _requests(request: Any) -> dict[str, dict[str, Any]]:
    """Return the metadata that `set_fit_request` and the like have asked for, by method."""
    if request is None:
        return {}
    routing = get_routing_for_object(request)
    asked = {method: dict(getattr(routing, method).requests) for method in _REQUESTS}
    return {method: metadata for method, metadata in asked.items() if metadata}


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : path-like
        A file, from any source: reading it runs no code.

    Returns
    -------
    estimator
        Equal to the one that was saved: the same class, parameters and fitted attributes, and on the same
        machine the same predictions to the last bit.

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
    content, arrays = read(path)
    try:
        record = decode(content, arrays)
        if not isinstance(record, Record):
            raise ValueError("it is not an estimator")
        return _estimator_of(record)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} holds no valid model: {error}.") from None


def _estimator_of(record: Record, *, is_parameter: bool = False) -> Any:
    """Return the estimator of a record, with its parameters and attributes checked."""
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
    for name, value in parameters.items():
        if isinstance(value, Record):
            parameters[name] = _estimator_of(value, is_parameter=True)
    estimator = kind(**parameters)
    estimator._validate_params()
    for name, value in fitted.items():
        if name in parameters or not _is_attribute(kind, name):
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
    if not is_parameter:
        CHECKS[record.kind](estimator)
    return estimator


def _restored(value: Any) -> Any:
    if isinstance(value, Record):
        return _estimator_of(value)
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return value


# ---------------------------------------------------------------- consistency of fitted attributes


def check_mixture(model: Any) -> None:
    """Check a fitted `SharedKernelMixture`; ValueError names what is wrong."""
    covariance_type = _attribute(model, "covariance_type_", str)
    if covariance_type not in COVARIANCE_TYPES:
        raise ValueError(f"its covariance type is {covariance_type!r}")
    if model.covariance_type != covariance_type:
        raise ValueError(
            f"covariance_type is {model.covariance_type!r}, but {covariance_type!r} was fitted: fit again"
        )
    n_kernels, n_features = _means(model).shape
    n_classes = _labels(_attribute(model, "classes_", np.ndarray))
    _distribution(model, "class_prior_", (n_classes,))
    _distribution(model, "weights_", (n_kernels, n_classes))
    _covariances(_numbers(model, "covariances_"), covariance_type, n_kernels, n_features)
    _features(model, n_features)
    if _attribute(model, "n_kernels_", Integral) != n_kernels:
        raise ValueError(f"n_kernels_ is {model.n_kernels_} for {n_kernels} kernels")
    if _numbers(model, "class_count_").shape != (n_classes,) or model.class_count_.min() < 0:
        raise ValueError(f"class_count_ is not {n_classes} numbers of rows")
    if hasattr(model, "covariance_prior_"):
        check_covariance_prior(_attribute(model, "covariance_prior_", tuple), n_features)
    _attribute(model, "converged_", bool)
    _attribute(model, "n_iter_", Integral)
    fit = ("log_likelihood_", "log_likelihood_path_", "start_status_", "start_log_likelihoods_")
    if not any(name in vars(model) for name in fit):
        return  # a marginal or conditional of another model, which was never fitted itself
    if np.isnan(_attribute(model, "log_likelihood_", float)):
        raise ValueError("log_likelihood_ is NaN")
    path = _numbers(model, "log_likelihood_path_", finite=False)
    if path.ndim != 2 or path.shape[1] not in (n_classes, n_classes + 1):
        raise ValueError(f"log_likelihood_path_ has shape {path.shape} for {n_classes} classes")
    status = _attribute(model, "start_status_", np.ndarray)
    reached = _numbers(model, "start_log_likelihoods_", finite=False)
    if status.dtype.kind != "U" or status.ndim != 1 or status.shape != reached.shape:
        raise ValueError(
            f"start_status_ {status.shape} and start_log_likelihoods_ {reached.shape} do not belong together"
        )
    _posterior(model, n_kernels, n_classes)


def _posterior(model: Any, n_kernels: int, n_classes: int) -> None:
    """Check the posterior of a variational fit, all of it or nothing."""
    shapes = {
        "weight_concentration_": (n_kernels, n_classes),
        "mean_precision_": (n_kernels,),
        "degrees_of_freedom_": (n_kernels,),
    }
    if not any(name in vars(model) for name in (*shapes, "lower_bound_", "lower_bound_path_")):
        return
    if np.isnan(_attribute(model, "lower_bound_", float)):
        raise ValueError("lower_bound_ is NaN")
    if _numbers(model, "lower_bound_path_", finite=False).ndim != 1:
        raise ValueError("lower_bound_path_ is not one path")
    for name, shape in shapes.items():
        values = _numbers(model, name)
        if values.shape != shape or not np.all(values > 0):
            raise ValueError(
                f"{name} has shape {values.shape}, not {shape}, or numbers that are not positive"
            )


def check_classifier(model: Any) -> None:
    """Check a fitted `SharedKernelClassifier` and its models."""
    models = _attribute(model, "models_", list)
    n_features = _attribute(model, "n_features_in_", Integral)
    _features(model, n_features)
    groups = check_feature_groups(_attribute(model, "feature_groups_", list), n_features, None)
    if len(groups) != len(models):
        raise ValueError(f"it has {len(models)} models for {len(groups)} feature groups")
    for group, (columns, part) in enumerate(zip(groups, models, strict=True)):
        if type(part).__name__ != "SharedKernelMixture":
            raise ValueError(f"the model of feature group {group} is a {type(part).__name__}")
        check_mixture(part)
        if part.means_.shape[1] != len(columns):
            raise ValueError(
                f"the model of feature group {group} has {part.means_.shape[1]} features "
                f"for {len(columns)} columns"
            )
        if not _same(part.classes_, models[0].classes_):
            raise ValueError(f"the model of feature group {group} has other classes")
    _distribution(model, "class_prior_", (len(models[0].classes_),))
    if not _attribute(model, "temperature_", float) > 0 or np.isnan(_attribute(model, "threshold_", float)):
        raise ValueError("temperature_ is not positive, or threshold_ is NaN")


def check_gaussian(model: Any) -> None:
    """Check a fitted `GaussianMixture`."""
    n_kernels, n_features = _means(model).shape
    structure = structure_of(model.covariance_type)
    _distribution(model, "weights_", (n_kernels,))
    covariances = _numbers(model, "covariances_")
    _covariances(covariances, model.covariance_type, n_kernels, n_features)
    shape = structure.shape(n_kernels, n_features)
    roots, precisions = _numbers(model, "precisions_cholesky_"), _numbers(model, "precisions_")
    if not roots.shape == precisions.shape == shape:
        raise ValueError(f"its precisions have the shapes {roots.shape} and {precisions.shape}, not {shape}")
    _inverse(*(_matrices(a, model.covariance_type, n_features) for a in (covariances, roots, precisions)))
    _features(model, n_features)
    _attribute(model, "converged_", bool)
    _attribute(model, "n_iter_", Integral)
    if np.isnan(_attribute(model, "lower_bound_", float)):
        raise ValueError("lower_bound_ is NaN")
    bounds = _attribute(model, "lower_bounds_", list)
    if any(not isinstance(bound, float) or np.isnan(bound) for bound in bounds):
        raise ValueError("lower_bounds_ are not all numbers")


def check_classifier_search(search: Any) -> None:
    """Check a fitted `SharedKernelClassifierCV` and its classifier."""
    _search(search, "classifier_", "SharedKernelClassifier")
    n_features = search.n_features_in_
    if _attribute(search, "projection_", (tuple, type(None))) is not None:
        offset, matrix = search.projection_
        if offset.shape != (n_features,) or matrix.shape[:1] != (n_features,) or matrix.ndim != 2:
            raise ValueError(
                f"projection_ has shapes {offset.shape}, {matrix.shape} for {n_features} features"
            )
        n_features = matrix.shape[1]
    if search.classifier_.n_features_in_ != n_features:
        raise ValueError(
            f"classifier_ takes {search.classifier_.n_features_in_} features, but is given {n_features}"
        )


def check_mixture_search(search: Any) -> None:
    """Check a fitted `SharedKernelMixtureCV` and its mixture."""
    _search(search, "best_estimator_", "SharedKernelMixture")


def _search(search: Any, name: str, kind: str) -> None:
    """Check what both searches have, and the model of the given name and class."""
    model = vars(search).get(name)
    if type(model).__name__ != kind:
        raise ValueError(f"{name} is a {type(model).__name__}")
    CHECKS[kind](model)
    _attribute(search, "n_features_in_", Integral)
    _attribute(search, "best_params_", dict)
    table = _attribute(search, "cv_results_", dict)
    if len({len(column) for column in table.values()}) != 1:
        raise ValueError("the columns of cv_results_ differ in length")
    if not _same(_attribute(search, "classes_", np.ndarray), model.classes_):
        raise ValueError(f"{name} has other classes")


CHECKS: dict[str, Callable[[Any], None]] = {
    "SharedKernelMixture": check_mixture,
    "SharedKernelClassifier": check_classifier,
    "GaussianMixture": check_gaussian,
    "SharedKernelClassifierCV": check_classifier_search,
    "SharedKernelMixtureCV": check_mixture_search,
}


def _attribute(model: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    if name not in vars(model):
        raise ValueError(f"{name} is missing")
    value = vars(model)[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} is a {type(value).__name__}")
    return value


def _numbers(model: Any, name: str, *, finite: bool = True) -> np.ndarray:
    array: np.ndarray = _attribute(model, name, np.ndarray)
    if array.dtype not in (np.float64, np.float32):
        raise ValueError(f"{name} is an array of {array.dtype}")
    if finite and not np.all(np.isfinite(array)):
        raise ValueError(f"{name} has values that are NaN or infinite")
    return array


def _means(model: Any) -> np.ndarray:
    means = _numbers(model, "means_")
    if means.ndim != 2 or 0 in means.shape:
        raise ValueError(f"means_ has shape {means.shape}")
    return means


def _labels(labels: np.ndarray) -> int:
    """Return the number of classes, whose labels must be sorted and distinct."""
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"classes_ has shape {labels.shape}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("classes_ has NaN")
    try:
        ordered = bool(np.all(labels[1:] > labels[:-1]))
    except TypeError as error:
        raise ValueError(f"classes_ has labels that cannot be compared: {error}") from None
    if not ordered:
        raise ValueError(f"classes_ are not sorted and distinct: {labels[:5].tolist()}")
    return len(labels)


def _features(model: Any, n_features: int) -> None:
    """Check the number of features and their names, where there are any."""
    known = _attribute(model, "n_features_in_", Integral)
    if known != n_features or known < 1:
        raise ValueError(f"n_features_in_ is {known} for {n_features} features")
    if "feature_names_in_" not in vars(model):
        return
    names = _attribute(model, "feature_names_in_", np.ndarray)
    if names.shape != (n_features,) or any(not isinstance(name, str) for name in names):
        raise ValueError(f"feature_names_in_ are not {n_features} names")


def _distribution(model: Any, name: str, shape: tuple[int, ...]) -> None:
    values = _numbers(model, name)
    if values.dtype == np.float32:
        # Single precision does not sum to one as closely; the rest of the check stays.
        values = values.astype(np.float64)
        if values.shape == shape and np.all(np.abs(values.sum(axis=0) - 1.0) < 1e-4):
            values /= values.sum(axis=0)
    check_distribution(values, shape, name)


def _matrices(array: np.ndarray, covariance_type: str, n_features: int) -> np.ndarray:
    """Return matrices (B, M, M) of structures that have them, otherwise the variances (B, 1, 1)."""
    order = n_features if structure_of(covariance_type).n_second(n_features) > n_features else 1
    return array.astype(np.float64).reshape(-1, order, order)


def _covariances(array: np.ndarray, covariance_type: str, n_kernels: int, n_features: int) -> None:
    structure = structure_of(covariance_type)
    if array.ndim == 3 and array.shape[-1] > 1:
        structure = structure.of(array)
    shape = structure.shape(n_kernels, n_features)
    if array.shape != shape:
        raise ValueError(
            f"covariances_ has shape {array.shape}, not {shape} as {n_kernels} kernels of {n_features} "
            f"features have with covariance_type={covariance_type!r}"
        )
    # Factors always make symmetric matrices.
    matrices = np.empty((0, 1, 1)) if structure.projects else _matrices(array, covariance_type, n_features)
    deviations = np.sqrt(np.abs(np.diagonal(matrices, axis1=1, axis2=2)))
    gap = np.abs(matrices - np.swapaxes(matrices, 1, 2))
    if np.any(gap > 1e-6 * deviations[:, :, None] * deviations[:, None, :]):
        raise ValueError(f"covariances_ are not symmetric: entries differ by {gap.max():.3g}")
    # The engine's own criterion, which bad scaling does not mislead.
    if not structure.factor(array.astype(np.float64)[None], n_features).usable[0]:
        raise ValueError("covariances_ are not positive definite")


def _inverse(covariances: np.ndarray, roots: np.ndarray, precisions: np.ndarray) -> None:
    """Check U (B, M, M) against P and P⁻¹ = UUᵀ, as closely as their conditioning allows."""
    if not np.all(np.diagonal(roots, axis1=1, axis2=2) > 0):
        raise ValueError("precisions_cholesky_ has a diagonal that is not positive")
    magnitude = np.abs(roots) @ np.swapaxes(np.abs(roots), 1, 2)
    product = roots @ np.swapaxes(roots, 1, 2)
    if np.any(np.abs(product - precisions) > _INVERSE_TOLERANCE * magnitude):
        raise ValueError("precisions_ are not the squares of precisions_cholesky_")
    white = np.swapaxes(roots, 1, 2) @ covariances @ roots
    # Variance inflation, P_ii (P⁻¹)_ii, is what rounding is multiplied by; attributes may be float32.
    inflation = np.einsum("bdd,bdd->bd", covariances, precisions).max(axis=1)
    order = covariances.shape[1]
    allowed = _INVERSE_TOLERANCE + 8 * order * np.finfo(np.float32).eps * inflation
    if np.any(np.abs(white - np.eye(order)) > allowed[:, None, None]):
        raise ValueError("precisions_cholesky_ does not belong to covariances_")


def _same(one: Any, other: Any) -> bool:
    """Return whether two arrays have the same type and values."""
    equal_nan = one.dtype.kind == "f" and other.dtype.kind == "f"
    return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=equal_nan)


# ---------------------------------------------------------------- ONNX


class ExportMixin:
    """Adds `to_onnx`; the class has the parts of its graph in `_graph_parts`."""

    n_features_in_: int

    def _graph_parts(self) -> dict[str, Any]:
        """Return the arguments of `build_graph` that are the estimator's own."""
        raise NotImplementedError

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, dtype: DTypeLike = np.float64
    ) -> ModelProto:
        """Return the fitted estimator as an ONNX model, and write it to a file if asked.

        Its input is ``X`` (n, M) for any n. Its outputs are ``label`` (n,) and ``probabilities`` (n, J) as
        from `predict` and `predict_proba`, or ``responsibilities`` (n, K) as from `transform`, and
        ``log_density`` (n,) as from `score_samples`.

        Parameters
        ----------
        path : path-like, default=None
            The file to make or to replace, such as ``"model.onnx"``.
        dtype : {float64, float32}, default=float64
            Type of X, of the probabilities and of the log-density. The graph computes in double precision
            either way: float32 rounds what goes in and what comes out, nothing between.

        Returns
        -------
        onnx.ModelProto
            The model, of plain operators (opset 18).

        Raises
        ------
        ImportError
            When onnx is not installed.

        Notes
        -----
        Rows with a missing value get NaN instead of probabilities, and an arbitrary label: marginalising over
        what is missing is not part of the graph, nor is the rejection of outliers.
        """
        check_is_fitted(self)
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, got {kind}.")
        model = build_graph(
            n_features=self.n_features_in_,
            dtype=kind,
            producer_version=_version.__version__,
            **host_copy(self)._graph_parts(),
        )
        if path is not None:
            with replacing(path) as file:
                file.write(model.SerializeToString(deterministic=True))
        return model


def kernels_of(
    parameters: Parameters, covariance_type: str, columns: list[int], *, by_class: bool
) -> Kernels:
    """Return the kernels of one model as the graph needs them, in the engine's own coordinates.

    `columns` are its columns of X; the graph sums over kernels with each class's weights if `by_class`.
    """
    structure = structure_of(covariance_type)
    n_kernels, n_features = parameters.means.shape
    if structure.projects:
        # The graph has whitening factors alone, so dense matrices take the place of factors.
        full = structure.to_full(parameters.covariances[None], n_kernels, n_features)[0]
        parameters, structure = replace(parameters, covariances=full), structure_of("full")
    frame = frame_of(parameters, structure)
    inside = frame.enter(parameters.batch(), structure)
    factor = structure.factor(inside.covariances, n_features)
    level = -0.5 * (n_features * np.log(2.0 * np.pi) + factor.log_determinant[0]) - frame.log_volume()
    return Kernels(
        columns=columns,
        scale=frame.scale,
        shift=frame.shift,
        farthest=FARTHEST,
        means=inside.means[0],
        whitener=factor.whitener[0],
        level=level,
        log_weights=log_probabilities(parameters.weights) if by_class else None,
    )


def log_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Return logarithms, −inf for zero."""
    with np.errstate(divide="ignore"):
        logarithms: np.ndarray = np.log(probabilities)
    return logarithms
