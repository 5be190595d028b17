"""Estimators as files: model files that `load` reads without running code, and ONNX graphs.

The same checks run before a file is written and after one is read, so that nothing is saved that could not be
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import DTypeLike
from sklearn import config_context
from sklearn.base import clone, is_classifier
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import check_is_fitted

from .. import _version
from ..engine.frame import FARTHEST, frame_of
from ..engine.model import Parameters
from ..engine.refine.merge import cut
from ..engine.refine.online import resume
from ..engine.structures import structure_of
from ..io import Record, decode, encode, read, replacing, write
from ..io.graph import Kernels, build_graph
from ..io.preparation import check_preparation
from ._settings import (
    OF_KERNELS,
    check_covariance_prior,
    check_covariance_type,
    check_covariances,
    check_feature_sets,
    check_tail,
)
from .decisions import check_outlier_label
from .rows import device_and_precision, host_copy

if TYPE_CHECKING:
    from onnx import ModelProto

Estimator = TypeVar("Estimator", bound=type)

# The only classes that a file can make, by name.
_CLASSES: dict[str, Any] = {}
# Methods whose metadata a user can ask for with `set_fit_request` and the like.
_REQUESTS = ("fit", "partial_fit", "predict", "predict_proba", "score", "transform")
_OUTPUTS = ("default", "pandas", "polars")
# Attributes of precision and covariance are each other's inverse to this, and to rounding.
_INVERSE_TOLERANCE = 1e-3


def savable(cls: Estimator) -> Estimator:
    """Let files hold estimators of a class; its subclasses need to be named themselves."""
    _CLASSES[cls.__name__] = cls
    return cls


class FileMixin:
    """Adds `save` and `to_onnx`. Everything a fit leaves behind ends in an underscore."""

    n_features_in_: int

    def _graph_parts(self) -> dict[str, Any]:
        """Return the arguments of `build_graph` that are the estimator's own."""
        raise NotImplementedError

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
        fit` notes the names of the columns of labels and weights there, and the outlier
        threshold of a model without classes.

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
            _CHECKS[name](model)
            content, arrays = encode(_record_of(model))
        except (ValueError, TypeError) as error:
            raise type(error)(f"This {name} cannot be saved: {str(error).rstrip('.')}.") from None
        write(path, content, arrays, _version.__version__)

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, dtype: DTypeLike = np.float64
    ) -> ModelProto:
        """Return the fitted estimator as an ONNX model, and write it to a file if asked.

        Its input is ``X`` (n, M) for any n. Its outputs are ``label`` (n,) and ``probabilities`` (n, J) as
        from `predict` and `predict_proba`, or ``responsibilities`` (n, K) as from `transform`, and
        ``log_density`` (n,) as from `score_samples`.

        A model of a table or a data frame with categories has them as a second
        input, ``categories`` (n, Q), text, "" for a missing value; X are then the other columns of the table.
        Both are in the order of the table's columns.

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
            The model, of plain operators (opset 18, and ``LabelEncoder`` where there are categories).

        Raises
        ------
        ImportError
            When onnx is not installed.
        ValueError
            When groups have means of their own.

        Notes
        -----
        Rows with a missing value get NaN instead of probabilities, and an arbitrary label: the graph does not
        marginalise over what is missing, prepare files or reject outliers.
        """
        check_is_fitted(self)
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, got {kind}.")
        model = build_graph(
            n_features=self.n_features_in_,
            columns=(vars(self).get("preparation_") or {}).get("columns"),
            dtype=kind,
            producer_version=_version.__version__,
            **host_copy(self)._graph_parts(),
        )
        if path is not None:
            with replacing(path) as file:
                file.write(model.SerializeToString(deterministic=True))
        return model


def _record_of(estimator: Any) -> Record:
    """Return an estimator in plain values."""
    parameters = estimator.get_params(deep=False)
    attributes = {name: value for name, value in vars(estimator).items() if name not in parameters}
    if isinstance(parameters.get("random_state"), np.random.RandomState):
        parameters["random_state"] = None
    if not isinstance(parameters.get("cv"), int):
        parameters.pop("cv", None)  # splitters have no place in a file, and a fitted search needs none
    if "cv_results_" in attributes:
        # Times differ from run to run, and the same fit is to make the same file.
        results = attributes["cv_results_"].items()
        attributes["cv_results_"] = {name: column for name, column in results if name != "mean_fit_time"}
    attributes.pop("_skl_callbacks", None)
    output, requests = attributes.pop("_sklearn_output_config", {}), {}
    if attributes.pop("_metadata_request", None) is not None:
        routing = get_routing_for_object(estimator)
        asked = {method: dict(getattr(routing, method).requests) for method in _REQUESTS}
        requests = {method: metadata for method, metadata in asked.items() if metadata}
    for name in attributes:
        if not _is_attribute(type(estimator), name):
            raise TypeError(f"{name} is neither a parameter nor an attribute of a fit; delete it first.")
    return Record(
        type(estimator).__name__,
        {
            # Of an estimator that is a parameter, only its own parameters matter.
            "parameters": {
                name: _record_of(clone(value)) if isinstance(value, FileMixin) else value
                for name, value in parameters.items()
            },
            "fitted": {name: _plain(value) for name, value in attributes.items()},
            "output": output,
            "requests": requests,
        },
    )


def _is_attribute(kind: Any, name: str) -> bool:
    """Return whether a fit may leave an attribute of that name in an estimator of that class."""
    return name.isidentifier() and name[0] != "_" and name[-1] == "_" and not hasattr(kind, name)


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
    content, arrays = read(path)
    try:
        record = decode(content, arrays)
        if not isinstance(record, Record):
            raise ValueError("it is not an estimator")
        estimator = _estimator_of(record)
        with np.errstate(all="ignore"):  # of numbers that are then refused
            _CHECKS[record.kind](estimator)
        return estimator
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} holds no valid model: {str(error).rstrip('.')}.") from None


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
    return estimator


def _restored(value: Any) -> Any:
    if type(value) is list:
        return [_restored(item) for item in value]
    return _estimator_of(value) if isinstance(value, Record) else value


# ---------------------------------------------------------------- consistency of fitted attributes

_HUGE = float(np.finfo(np.float64).max)
_TINY = float(np.finfo(np.float64).tiny)
# Larger numbers cannot be squared; larger powers of clipped values overflow.
_SQUARABLE, _MOST_POWER = 1e154, 30.0
_ARRAYS = (
    *("class_prior_", "classes_", "covariances_", "feature_names_in_", "merge_tree_", "populations_"),
    *("precisions_", "precisions_cholesky_", "shares_", "start_status_", "weights_"),
)
_LISTS = ("classifiers_", "feature_sets_", "feature_maps_", "lower_bounds_", "mixtures_", "models_")
_DICTS = (
    *("best_params_", "cv_results_", "metadata_", "preparation_", "stream_"),
    "tuned_",
)
# What attributes are, in whatever estimator they are: a type, and the lowest and the highest number. Letters
# are the axes of an array of floating-point numbers: capitals for sizes that agree (kernels K, classes L,
# features M), small letters for any size. Numbers are finite unless a bound is infinite, and never NaN.
_ATTRIBUTES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_ARRAYS, (np.ndarray,)),
    **dict.fromkeys(_LISTS, (list,)),
    **dict.fromkeys(_DICTS, (dict,)),
    **dict.fromkeys(("converged_", "has_gaps_"), (bool,)),
    **dict.fromkeys(("covariance_type_", "prior_setting_"), (str,)),
    **dict.fromkeys(("best_index_", "n_iter_", "n_untried_"), (Integral, 0)),
    **dict.fromkeys(("n_features_in_", "n_kernels_"), (Integral, 1)),
    "best_score_": (object,),
    "covariance_prior_": (tuple,),
    "group_shift_": (float, _TINY, np.inf),
    "log_likelihood_": (float,),
    "lower_bound_": (float, -np.inf),
    "shrinkage_": (float, 0.0, 1.0),
    # Beyond these, log-densities of far rows would overflow.
    "temperature_": (float, 1e-100, 1e100),
    "threshold_": (float, -np.inf),
    "means_": ("KM", -_SQUARABLE, _SQUARABLE),
    "kernel_degrees_": ("K", 1.0),
    "merge_entropies_": ("K",),
    **dict.fromkeys(("degrees_of_freedom_", "mean_precision_", "weight_prior_"), ("K", _TINY)),
    "weight_concentration_": ("KL", _TINY),
    "background_weights_": ("L", 0.0, 1.0),
    "class_count_": ("L", 0.0),
    "group_shifts_": ("LKM", -_SQUARABLE, _SQUARABLE),
    "background_box_": ("BM",),
    **dict.fromkeys(("resolution_", "variance_floor_"), ("M", 0.0)),
    "log_likelihood_path_": ("pc",),
    "lower_bound_path_": ("s",),
    # A start that failed has reached minus infinity.
    "start_log_likelihoods_": ("s", -np.inf),
}
# Ranges of the state of a stream. Rows are clipped, in units of its scale, and other numbers are of squares.
_SQUARED = FARTHEST**2
_STREAM = {
    "scale": (1.0 / _SQUARABLE, _SQUARABLE),
    "shift": (-FARTHEST, FARTHEST),
    "variance": (0.0, _SQUARED),
    "bound": (0.0, _HUGE),
    "mass": (0.0, 2.0),
    "n_batches": (1, 2**53),
    "n_rows": (_TINY, _HUGE),
}
_MIXTURE = (
    *("classes_", "class_count_", "class_prior_", "converged_", "covariance_type_", "covariances_"),
    *("means_", "n_features_in_", "n_iter_", "n_kernels_", "weights_"),
)
# Of these an estimator has all or none: a marginal or conditional of another model was never fitted itself.
_FIT = ("log_likelihood_", "log_likelihood_path_", "start_status_", "start_log_likelihoods_")
_BOUND = ("weight_concentration_", "lower_bound_path_")
_POPULATIONS = ("populations_", "merge_tree_", "merge_entropies_")
_POSTERIOR = ("mean_precision_", "degrees_of_freedom_")
_SHIFTS = ("group_shift_", "group_shifts_")
_CLASSIFIER = ("class_prior_", "feature_sets_", "models_", "n_features_in_", "temperature_", "threshold_")
_GAUSSIAN = (
    *("converged_", "covariances_", "lower_bound_", "lower_bounds_", "means_", "n_features_in_", "n_iter_"),
    *("precisions_", "precisions_cholesky_", "weights_"),
)
_SEARCH = ("best_index_", "best_params_", "best_score_", "cv_results_", "n_features_in_", "n_untried_")
_CLASSIFIERS, _MIXTURES = ("classifiers_", "feature_maps_"), ("mixtures_", "shares_")
# Parts of what a member takes of rows, and their axes; the last three may be missing.
_MAP = {"shift": "M", "scale": "M", "powers": "M", "curves": "CMS", "offset": "M", "matrix": "MQ"}


def arrays_of_kernels(model: Any) -> list[str]:
    """Return the names of a mixture's fitted arrays that have one line for each kernel."""
    named = [name for name, (axes, *_) in _ATTRIBUTES.items() if isinstance(axes, str) and axes[0] == "K"]
    return [name for name in ("weights_", *named) if name in vars(model)]


def _require(valid: Any, problem: str) -> None:
    if not valid:
        raise ValueError(problem)


def _check_attributes(model: Any, required: Sequence[str]) -> dict[str, int]:
    """Check types, ranges, shapes and feature names, and return the sizes of axes by letter."""
    present = {name for name in vars(model) if name[-1] == "_" and name[0] != "_"}
    unknown = min(present - _ATTRIBUTES.keys(), default=None)
    _require(unknown is None, f"{unknown} is not an attribute of a fit; what you note belongs in metadata_")
    # Weights alone have a posterior if their prior was learnt by EM.
    alone = "weight_prior_" in present and present.isdisjoint(_POSTERIOR)
    for group in (_FIT, _BOUND if alone else _BOUND + _POSTERIOR, _POPULATIONS, _SHIFTS):
        required = required if present.isdisjoint(group) else (*required, *group)
    for name in required:
        _require(name in present, f"{name} is missing")
    sizes: dict[str, int] = {}
    for name in (name for name in _ATTRIBUTES if name in present):
        (kind, *bounds), value = _ATTRIBUTES[name], vars(model)[name]
        if isinstance(kind, str):
            _check_array(name, value, kind, sizes, *bounds)
            continue
        right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        _require(right, f"{name} is a {type(value).__name__}")
        if kind in (float, Integral):
            _check_range(name, np.asarray(value), *bounds)
    n_features = sizes.setdefault("M", model.n_features_in_)
    _require(
        model.n_features_in_ == n_features,
        f"n_features_in_ is {model.n_features_in_} for {n_features} features",
    )
    names = vars(model).get("feature_names_in_")
    if names is not None:
        named = names.shape == (n_features,) and all(isinstance(name, str) for name in names)
        _require(
            named and len(set(names)) == n_features,
            f"feature_names_in_ are not {n_features} names, each once",
        )
    if "preparation_" in present:
        check_preparation(model.preparation_, n_features, () if names is None else names)
    _check_metadata(vars(model).get("metadata_", {}))
    device_and_precision(getattr(model, "device", None))
    return sizes


def _check_metadata(noted: dict[Any, Any]) -> None:
    """Check what the command line stores in a model, beside which users may store what they want."""
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


def _check_range(name: str, values: np.ndarray, lowest: float = -_HUGE, highest: float = _HUGE) -> None:
    """Check that numbers are between two others, both included; NaN never is."""
    if values.dtype == np.float32:
        values = values.astype(np.float64)  # which has room for the bounds
    wrong = values[~((values >= lowest) & (values <= highest))]
    for first in wrong.flat[:1]:
        what = "has values that are NaN or infinite" if values.ndim else f"is {values}"
        _require(np.isfinite(float(first)), f"{name} {what}")
        positive = lowest == _TINY and first < lowest
        why = "not positive" if positive else f"not between {lowest:g} and {highest:g}"
        raise ValueError(f"{name} {'has' if values.ndim else 'is'} {first}, which is {why}")


def _check_array(
    name: str, array: Any, axes: str, sizes: dict[str, int], lowest: float = -_HUGE, highest: float = _HUGE
) -> None:
    if not isinstance(array, np.ndarray) or array.dtype not in (np.float64, np.float32):
        raise ValueError(f"{name} is of type {getattr(array, 'dtype', type(array).__name__)}")
    named = {axis: n for axis, n in zip(axes, array.shape, strict=False) if axis.isupper()}
    if array.ndim != len(axes) or any(n == 0 or sizes.setdefault(axis, n) != n for axis, n in named.items()):
        shape = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
        raise ValueError(f"{name} has shape {array.shape}, not ({shape})")
    _check_range(name, array, lowest, highest)


def _check_distribution(model: Any, name: str, axes: str, sizes: dict[str, int]) -> None:
    values = vars(model)[name]
    _check_array(name, values, axes, sizes)
    _require(np.all(values >= 0), f"{name} has negative values, such as {values.min()}")
    sums = np.ravel(values.sum(axis=0, dtype=np.float64))
    worst = sums[np.argmax(np.abs(sums - 1.0))]
    if abs(worst - 1.0) > (1e-4 if values.dtype == np.float32 else 1e-6):
        which = f"each column of {name}" if values.ndim > 1 else name
        raise ValueError(f"{which} must sum to one, got a sum of {worst:.6g}")


def _check_double(model: Any) -> None:
    """Check that arrays are of double precision, as those of shared kernels always are."""
    for name, value in vars(model).items():
        single = name != "classes_" and getattr(value, "dtype", None) == np.float32
        _require(not single, f"{name} is of type float32")


def _check_mixture(model: Any) -> None:
    sizes, own = _check_attributes(model, _MIXTURE), vars(model)
    _check_double(model)
    _require(
        check_covariance_type(model.covariance_type)[0] in ("auto", model.covariance_type_),
        f"covariance_type is {model.covariance_type!r}, but {model.covariance_type_!r} was fitted: fit again",
    )
    _require(model.n_kernels_ == sizes["K"], f"n_kernels_ is {model.n_kernels_} for {sizes['K']} kernels")
    _check_distribution(model, "class_prior_", "L", sizes)
    _check_distribution(model, "weights_", "KL", sizes)
    _check_labels(model.classes_, sizes["L"])
    _check_covariances(model, sizes)
    if "covariance_prior_" in own:
        check_covariance_prior(model.covariance_prior_, sizes["M"])
    setting = own.get("prior_setting_")
    _require(setting in (None, "auto", "weak"), f"prior_setting_ is {setting!r}")
    if "start_status_" in own:
        path, status = model.log_likelihood_path_, model.start_status_
        _require(
            path.shape[1] - sizes["L"] in (0, 1),
            f"log_likelihood_path_ has shape {path.shape} for {sizes['L']} classes",
        )
        together = status.shape == model.start_log_likelihoods_.shape
        _require(
            together and set(status.tolist()) <= {"converged", "stopped", "failed"},
            "start_status_ and start_log_likelihoods_ do not belong together",
        )
    if "populations_" in own:
        _check_populations(model, sizes["K"])
    if "stream_" in own:
        _check_stream(model)
    _check_tails(model)


def _check_stream(model: Any) -> None:
    """Check that the state of a stream is one that could be of this model."""
    kind, parameters = model.covariance_type_, replace(model._parameters, class_prior=model.class_prior_)
    expected = resume(parameters, frame_of(parameters, structure_of(kind)), kind, 1, 1.0).to_dict()
    _require(
        model.stream_.keys() == expected.keys(),
        f"stream_ has {sorted(map(str, model.stream_))}, not {sorted(expected)}",
    )
    for name, other in expected.items():
        value, what = model.stream_[name], f"{name} of stream_"
        right = isinstance(value, type(other)) and not isinstance(value, bool)
        _require(right, f"{what} is a {type(value).__name__}")
        bounds = _STREAM.get(name, (-_SQUARED, _SQUARED))
        if isinstance(value, np.ndarray):
            axes = "ABC"[: other.ndim]
            _check_array(what, value, axes, dict(zip(axes, other.shape, strict=True)), *bounds)
        else:
            _check_range(what, np.asarray(value), *bounds)


def _check_tails(model: Any) -> None:
    """Check that degrees of freedom and a background are there if the settings say so, and possible."""
    kind, fixed = check_tail(model.tail)
    degrees, weights, box = (vars(model).get(name) for name in OF_KERNELS)
    settings = f"with tail={model.tail!r}"
    wanted_of = (kind == "t", kind == "background", kind == "background")
    for name, value, wanted in zip(OF_KERNELS, (degrees, weights, box), wanted_of, strict=True):
        there = "is missing" if wanted else "was fitted"
        _require((value is not None) == wanted, f"{name} {there}, {settings}")
    if degrees is not None:
        possible = np.all(degrees >= 1.0 if fixed is None else degrees == fixed)
        _require(possible, f"kernel_degrees_ has {degrees.min()}, {settings}")
    if box is not None:
        right = len(box) == 2 and np.all((box[0] < box[1]) & (box[1] - box[0] < np.inf))
        _require(right, "background_box_ has no volume")


def _check_populations(model: Any, n_kernels: int) -> None:
    """Check that the populations are those of a cut of the tree of merges."""
    from scipy.cluster.hierarchy import is_valid_linkage  # which takes long to load

    populations, tree, entropies = (vars(model)[name] for name in _POPULATIONS)
    _check_array("merge_entropies_", entropies, "K", {"K": n_kernels})
    right = tree.shape == (n_kernels - 1, 4) and tree.dtype == np.float64
    _require(right, f"merge_tree_ has shape {tree.shape}, not ({n_kernels - 1}, 4)")
    right = np.all(np.isfinite(tree)) and np.all(tree[:, :2] == np.floor(tree[:, :2]))
    _require(right and (n_kernels == 1 or is_valid_linkage(tree)), "merge_tree_ is not a tree of merges")
    right = populations.shape == (n_kernels,) and populations.dtype.kind == "i"
    _require(right, f"populations_ are not {n_kernels} whole numbers")
    numbers = np.unique(populations)
    right = np.array_equal(numbers, np.arange(len(numbers)))
    _require(right, f"populations_ have the numbers {numbers[:5].tolist()}, not 0 to {len(numbers) - 1}")
    parts = np.stack([cut(tree, len(numbers)), populations])
    _require(len(np.unique(parts, axis=1).T) == len(numbers), "populations_ are not those of merge_tree_")


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


def _check_covariances(model: Any, sizes: dict[str, int]) -> None:
    # scikit-learn's interface has no fitted name.
    covariance_type = getattr(model, "covariance_type_", model.covariance_type)
    array, structure = model.covariances_, structure_of(covariance_type)
    _require(array.dtype in (np.float64, np.float32), f"covariances_ is of type {array.dtype}")
    if array.ndim == 3 and array.shape[-1] > 1:
        structure = structure.of(array)
    check_covariances(array, structure, sizes["K"], sizes["M"])


def _check_classifier(model: Any) -> None:
    _check_attributes(model, _CLASSIFIER)
    models = model.models_
    groups = check_feature_sets(model.feature_sets_, model.n_features_in_, None)
    _require(len(groups) == len(models), f"it has {len(models)} models for {len(groups)} feature sets")
    for group, (columns, part) in enumerate(zip(groups, models, strict=True)):
        name, classes = f"the model of feature set {group}", models[0].classes_
        _check_part(part, "SharedKernelMixture", len(columns), name)
        same = part.classes_.dtype == classes.dtype and np.array_equal(part.classes_, classes)
        _require(same, f"{name} has other classes")
    _check_double(model)
    _check_distribution(model, "class_prior_", "L", {"L": len(models[0].classes_)})
    if "tuned_" in vars(model):
        _check_tuned(model.tuned_)
    check_outlier_label(model.outlier_label, models[0].classes_, rejects=model.threshold_ > -np.inf)


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
    sizes = _check_attributes(model, _GAUSSIAN)
    _check_distribution(model, "weights_", "K", sizes)
    _check_covariances(model, sizes)
    numbers = all(isinstance(bound, float) and bound == bound for bound in model.lower_bounds_)
    _require(numbers, "lower_bounds_ are not all numbers")
    axes = dict(zip("ABC", model.covariances_.shape, strict=False))
    for name in ("precisions_cholesky_", "precisions_"):
        _check_array(name, vars(model)[name], "".join(axes), axes)
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
    """Check a search, its models, and what they take of rows."""
    members = _CLASSIFIERS if is_classifier(search) else _MIXTURES
    n_features = _check_attributes(search, (*_SEARCH, *members))["M"]
    _check_results(search)
    parts, others = (vars(search)[name] for name in members)
    right = len(parts) and len(others) == len(parts)
    _require(right, f"{members[0]} and {members[1]} differ in length, or are empty")
    if members is _MIXTURES:
        _check_distribution(search, "shares_", "S", {"S": len(parts)})
    for number, part in enumerate(parts):
        if members is _MIXTURES:
            _check_part(part, "SharedKernelMixture", n_features, members[0])
        else:
            width = _width_of(others[number], n_features, number)
            _check_part(part, "SharedKernelClassifier", width, members[0])
        same = part.classes_.tolist() == parts[0].classes_.tolist()
        _require(same, f"{members[0]} differ in their classes")


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
        # Curves and projection are there or not.
        if {"curves": change[3], "offset": matrix, "matrix": matrix}.get(part, change) is None:
            continue
        highest = _MOST_POWER if part == "powers" else _SQUARABLE
        what, sizes = f"the {part} of {name}", {"M": n_features, "C": 2}
        _check_array(what, array, axes, sizes, -highest, highest)
        _require(array.dtype == np.float64, f"{what} is of type {array.dtype}")
    _require(np.all(change[1] != 0), f"the scale of {name} is zero")
    ascending = change[3] is None or np.all(np.diff(change[3][0]) >= 0)
    _require(ascending, f"the knots of the curves of {name} are not in ascending order")
    return n_features if matrix is None else int(matrix.shape[1])


_CHECKS: dict[str, Callable[[Any], None]] = {
    "SharedKernelMixture": _check_mixture,
    "SharedKernelClassifier": _check_classifier,
    "GaussianMixture": _check_gaussian,
    "SharedKernelClassifierCV": _check_search,
    "SharedKernelMixtureCV": _check_search,
}


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
    level = inside.tail.log_peaks(factor.log_determinant, n_features)[0] - frame.log_volume()
    weights, background = log_probabilities(parameters.weights), None
    of_tail = parameters.tail.to_dict()
    if "weights" in of_tail:
        weights = weights + log_probabilities(1.0 - of_tail["weights"])
        background = log_probabilities(of_tail["weights"])
    return Kernels(
        columns=columns,
        scale=frame.scale,
        shift=frame.shift,
        farthest=FARTHEST,
        means=inside.means[0],
        whitener=factor.whitener[0],
        level=level,
        log_weights=weights if by_class else None,
        degrees=of_tail.get("degrees"),
        box=of_tail.get("box"),
        log_background=background,
    )


def log_probabilities(probabilities: np.ndarray) -> np.ndarray:
    """Return logarithms, −inf for zero."""
    with np.errstate(divide="ignore"):
        logarithms: np.ndarray = np.log(probabilities)
    return logarithms
