"""Fitted estimators as ONNX graphs of standard operators, in double precision and in the log domain.

Inside a graph, rows are the last axis, n, until posteriors are formed. K is the number of kernels, and J the
number of outcomes, which are the classes or the kernels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike
from sklearn.utils.validation import check_is_fitted

from .. import _version
from .._errors import Argument, ArgumentError
from .._extras import need
from ..data.encoding import OTHER, Kind
from ..data.recipe import Recipe, in_words
from ..data.write import replacing
from ..engine.numbers import safe_log
from ..engine.records import FARTHEST, Parameters, frame_of
from ..engine.structures import structure_of
from .checks import warn_caller

if TYPE_CHECKING:
    from onnx import ModelProto

# The first version of the operators in which all reductions take axes as an input.
_OPERATORS = 18
# The file version that came with it; onnxruntime has read both since 2023.
_FILE_VERSION = 8
# Version of the operators of ai.onnx.ml, which encode categories.
_ENCODERS = 3
# Standardised values are clipped to this magnitude, as by `FeatureMap`.
_FARTHEST_MAPPED = 1e8

FeatureSet = tuple[list[int], Parameters, str]
"""Columns (m), and the mixture of their features with its covariance type."""
Features = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]
"""Shift, scale and powers (M,), curves (2, M, k), offset (M,) and matrix (M, q); see `FeatureMap`."""


class ExportMixin:
    """Adds `to_onnx`."""

    n_features_in_: int

    def _graph_parts(self) -> dict[str, Any]:
        """The arguments of `_posterior`, and the labels (J,) if the graph predicts any."""
        raise NotImplementedError

    def to_onnx(
        self, path: str | os.PathLike[str] | None = None, *, dtype: DTypeLike = np.float64
    ) -> ModelProto:
        """Return the fitted estimator as an ONNX model, and write it to a file if `path` is given.

        The input is ``X`` (n, M) for any n. The outputs are ``label`` (n,) and ``probabilities`` (n, J), as
        from `predict` and `predict_proba`, or ``responsibilities`` (n, K), as from `transform`, and
        ``log_density`` (n,), as from `score_samples`.

        If the model was fitted to a table or a data frame with categories, X has the numeric columns, and a
        second input, ``categories`` (n, Q), has the others as text, "" for missing values. Both keep the
        order of the table.

        Parameters
        ----------
        path : path-like, default=None
            The file to create or replace, such as ``"model.onnx"``.
        dtype : {float64, float32}, default=float64
            Type of X, of the probabilities and of the log-density. The graph computes in double precision:
            float32 applies to input and output only.

        Returns
        -------
        onnx.ModelProto
            The model, in standard operators (opset 18, and ``LabelEncoder`` for categories).

        Raises
        ------
        ImportError
            If onnx is not installed.
        ValueError
            If groups have different means (`group_shift`), and for a search that averages several models.

        Notes
        -----
        Rows with a missing value get NaN as probabilities and an arbitrary label: the graph does not
        marginalise over missing values. Nor does it reject outliers, or compensate and transform values: X is
        on the scale of the model, and a warning says so. Dates are numbers of days since 1970.
        """
        check_is_fitted(self)
        kind = np.dtype(dtype)
        if kind not in (np.float64, np.float32):
            raise ValueError(f"dtype must be float64 or float32, got {kind}.")
        preparation = getattr(self, "recipe_", {"transform": "none"})
        if preparation["transform"] != "none" or preparation.get("compensate"):
            warn_caller(
                "The graph does not prepare the values of X as the model does: give them on the scale "
                f"{in_words(preparation)}."
            )
        model = _graph_of(self._graph_parts(), Recipe.of(self).n_features, preparation.get("columns"), kind)
        if path is not None:
            with replacing(path) as file:
                file.write(model.SerializeToString(deterministic=True))
        return model


def refuse_average(search: Any, n_members: int) -> None:
    """Raise ValueError for a search whose result is an average of several models."""
    if n_members > 1:
        raise ArgumentError(
            f"ONNX graphs are of single models, and this {type(search).__name__} averages {n_members}: fit "
            "with ",
            Argument("n_kernels", "N", wording="n_members=1"),
            ".",
        )


def _graph_of(
    parts: dict[str, Any], n_features: int, columns: Mapping[str, Kind] | None, dtype: np.dtype
) -> ModelProto:
    """A graph from X (n, M) to ``label`` (n,), probabilities (n, J) and ``log_density`` (n,).

    X and the results are of type `dtype`. With the `columns` of a table, X has the numeric columns, and the
    input ``categories`` (n, Q) the others.
    """
    need("onnx", "Export to ONNX needs")
    from onnx import TensorProto, checker, helper

    graph, outside, labels = _Graph(), helper.np_dtype_to_tensor_dtype(dtype), parts.pop("labels", None)
    widths = {"X": n_features}
    if columns is not None:
        n_coded = sum(isinstance(kind, list) for kind in columns.values())
        widths = {"X": len(columns) - n_coded, "categories": n_coded}
    inputs = [
        helper.make_tensor_value_info(name, outside if name == "X" else TensorProto.STRING, ["n", width])
        for name, width in widths.items()
        if width
    ]
    rows = graph.add("Cast", "X", to=TensorProto.DOUBLE) if widths["X"] else ""
    if columns is not None:
        rows = _encoded(graph, rows, columns)
    joint, density, posterior = _posterior(graph, rows, **parts)
    outputs = []
    if labels is not None:
        names = _names(labels)
        best = graph.add("ArgMax", joint, axis=1, keepdims=0)
        graph.add("Gather", names, best, axis=0, output="label")
        outputs.append(
            helper.make_tensor_value_info("label", helper.np_dtype_to_tensor_dtype(names.dtype), ["n"])
        )
    probabilities = "responsibilities" if labels is None else "probabilities"
    graph.add("Cast", posterior, to=outside, output=probabilities)
    graph.add("Cast", density, to=outside, output="log_density")
    outputs.append(helper.make_tensor_value_info(probabilities, outside, ["n", len(parts["log_prior"])]))
    outputs.append(helper.make_tensor_value_info("log_density", outside, ["n"]))
    operators = [helper.make_opsetid("", _OPERATORS)]
    if "categories" in widths:
        operators.append(helper.make_opsetid("ai.onnx.ml", _ENCODERS))
    model = helper.make_model(
        helper.make_graph(graph.nodes, "mixture", inputs, outputs, graph.constants),
        producer_name="skmix",
        producer_version=_version.__version__,
        opset_imports=operators,
        ir_version=_FILE_VERSION,
    )
    checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Nodes and constants under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(
        self, operator: str, *inputs: str | np.ndarray, output: str | None = None, **attributes: Any
    ) -> str:
        """Add a node and return the name of its output; arrays among the inputs become constants."""
        from onnx import helper, numpy_helper

        names = []
        for value in inputs:
            name = value if isinstance(value, str) else f"constant_{len(self.constants)}"
            if not isinstance(value, str):
                contiguous = np.ascontiguousarray(value).reshape(value.shape)
                self.constants.append(numpy_helper.from_array(contiguous, name))
            names.append(name)
        result = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], name=result, **attributes))
        return result


def _encoded(graph: _Graph, numbers: str, columns: Mapping[str, Kind]) -> str:
    """Features (n, M) of numbers (n, P) and the input ``categories`` (n, Q); NaN for unknown categories."""
    from onnx import TensorProto

    parts, n_numbers = [], 0
    for kind in columns.values():
        if not isinstance(kind, list):
            parts.append(graph.add("Gather", numbers, np.array([n_numbers]), axis=1))
            n_numbers += 1
            continue
        text = graph.add("Gather", "categories", np.array([len(parts) - n_numbers]), axis=1)
        code = graph.add(
            "LabelEncoder",
            text,
            domain="ai.onnx.ml",
            # An empty text is missing.
            keys_strings=[*kind, ""],
            values_int64s=[*range(len(kind)), -1],
            default_int64=kind.index(OTHER) if OTHER in kind else -1,
        )
        is_category = graph.add("Equal", code, np.arange(len(kind))[len(kind) == 2 :])
        known = graph.add("GreaterOrEqual", code, np.array(0))
        one_hot = graph.add("Cast", is_category, to=TensorProto.DOUBLE)
        parts.append(graph.add("Where", known, one_hot, np.array(np.nan)))
    return graph.add("Concat", *parts, axis=1)


def _mapped(graph: _Graph, rows: str, features: Features) -> str:
    """Standardise rows (n, M), transform them by powers and curves, and project them (n, q)."""
    shift, scale, powers, curves, offset, matrix = features
    z = graph.add("Div", graph.add("Sub", rows, shift), scale)
    z = graph.add("Clip", z, np.array(-_FARTHEST_MAPPED), np.array(_FARTHEST_MAPPED))
    if np.any(powers != 1.0):
        logs = graph.add("Log", graph.add("Add", graph.add("Abs", z), np.array(1.0)))
        sides = []
        for exponent in (powers, 2.0 - powers):
            # (e^{λ log(1 + |z|)} − 1) / λ, and log(1 + |z|) for λ = 0.
            zero = exponent == 0.0
            power = graph.add("Exp", graph.add("Mul", logs, exponent))
            side = graph.add("Div", graph.add("Sub", power, np.array(1.0)), np.where(zero, 1.0, exponent))
            sides.append(graph.add("Where", zero, logs, side))
        positive = graph.add("GreaterOrEqual", z, np.array(0.0))
        changed = graph.add("Where", positive, sides[0], graph.add("Neg", sides[1]))
        z = graph.add("Where", powers == 1.0, z, changed)
    if curves is not None:
        z = _along(graph, curves, z)
    if offset is None or matrix is None:
        return z
    return graph.add("MatMul", graph.add("Sub", z, offset), matrix)


def _along(graph: _Graph, curves: np.ndarray, z: str) -> str:
    """Map values (n, M) by piecewise linear curves (2, M, k): sum the rises of all segments."""
    places, values = curves
    widths, rises = np.diff(places), np.diff(values)
    passed = graph.add("Sub", graph.add("Unsqueeze", z, np.array([2])), places[:, :-1])
    shares = graph.add("Div", passed, np.where(widths > 0.0, widths, 1.0))
    shares = graph.add("Clip", shares, np.array(0.0), np.array(1.0))
    risen = graph.add("Mul", shares, np.where(widths > 0.0, rises, 0.0))
    within = graph.add("Add", graph.add("ReduceSum", risen, np.array([2]), keepdims=0), values[:, 0])
    # Beyond its ends, a curve has slope one.
    clipped = graph.add("Min", graph.add("Max", z, places[:, 0]), places[:, -1])
    return graph.add("Add", within, graph.add("Sub", z, clipped))


def _log_densities(graph: _Graph, rows: str, feature_set: FeatureSet) -> str:
    """Log-densities (K, n) of rows under the kernels of one feature set, in the engine's frame."""
    columns, parameters, covariance_type = feature_set
    structure, n_features = structure_of(covariance_type), len(columns)
    frame = frame_of(parameters, structure)
    inside, degrees = frame.enter(parameters.batch(), structure), parameters.tail.degrees
    factor = structure.factor(inside.covariances, n_features)
    log_peaks = inside.tail.log_peaks(factor.log_determinant, n_features)[0] - frame.log_volume()
    features = graph.add("Gather", rows, np.array(columns, dtype=np.int64), axis=1)
    x = graph.add("Sub", graph.add("Div", features, frame.scale), frame.shift)
    # So that squares stay finite.
    x = graph.add("Clip", x, np.array(-FARTHEST), np.array(FARTHEST))
    difference, whitener = graph.add("Sub", x, inside.means[0][:, None, :]), factor.whitener[0]
    if whitener.ndim == 3:  # (K or 1, m, m): W with W P Wᵀ = I
        white = graph.add("MatMul", difference, np.swapaxes(whitener, 1, 2))
    else:
        white = graph.add("Mul", difference, whitener[:, None, :])
    distance = graph.add("ReduceSum", graph.add("Mul", white, white), np.array([2]), keepdims=0)
    if degrees is None:
        drop = graph.add("Mul", distance, np.array(0.5))
    else:
        ratio = graph.add("Add", graph.add("Div", distance, degrees[:, None]), np.array(1.0))
        powers = 0.5 * (degrees + n_features)
        drop = graph.add("Mul", graph.add("Log", ratio), powers[:, None])
    return graph.add("Sub", log_peaks[:, None], drop)


def _log_sum(graph: _Graph, values: str) -> tuple[str, str, str]:
    """Maximum of values along axis 1, values minus that, and the log-sum-exp of these differences.

    Added to a maximum of 1e16, the last would be lost.
    """
    axis = np.array([1])
    largest = graph.add("ReduceMax", values, axis, keepdims=1)
    differences = graph.add("Sub", values, largest)
    total = graph.add("Log", graph.add("ReduceSum", graph.add("Exp", differences), axis, keepdims=1))
    return largest, differences, total


def _posterior(
    graph: _Graph,
    rows: str,
    *,
    feature_sets: Sequence[FeatureSet],
    log_prior: np.ndarray,
    by_class: bool = False,
    temperature: float = 1.0,
    features: Features | None = None,
) -> tuple[str, str, str]:
    """Log-joints (n, J), log-density (n,) and posterior (n, J) of rows (n, M) under one model.

    The outcomes are the classes, or the kernels of the only feature set, with log-priors (J,). Columns of
    feature sets refer to rows, or to their mapped `features`. Log-joints are divided by the temperature
    before they are normalised.
    """
    from onnx import TensorProto

    mapped = rows if features is None else _mapped(graph, rows, features)
    outcomes = []
    for feature_set in feature_sets:
        logs = _log_densities(graph, mapped, feature_set)
        if by_class:  # log p(x | class), (L, n)
            log_weights = safe_log(feature_set[1].weights)
            weighted = graph.add("Add", logs, log_weights.T[:, :, None])
            largest, _, total = _log_sum(graph, weighted)
            logs = graph.add("Squeeze", graph.add("Add", largest, total), np.array([1]))
        outcomes.append(logs)
    joint = reduce(lambda one, other: graph.add("Add", one, other), outcomes)
    joint = graph.add("Transpose", graph.add("Add", joint, log_prior[:, None]), perm=[1, 0])
    gaps = graph.add("IsNaN", rows)
    if features is None or features[-1] is None:
        used = np.array(sorted(c for columns, *_ in feature_sets for c in columns), dtype=np.int64)
        gaps = graph.add("Gather", gaps, used, axis=1)
    gaps = graph.add("ReduceMax", graph.add("Cast", gaps, to=TensorProto.INT32), np.array([1]), keepdims=1)
    missing = graph.add("Cast", gaps, to=TensorProto.BOOL)
    largest, _, total = _log_sum(graph, joint)
    density = graph.add("Add", largest, total)
    _, differences, total = _log_sum(graph, graph.add("Div", joint, np.array(temperature)))
    posterior = graph.add("Exp", graph.add("Sub", differences, total))
    # Set NaN explicitly: ONNX does not specify how Clip treats it.
    posterior = graph.add("Where", missing, np.array(np.nan), posterior)
    density = graph.add("Squeeze", graph.add("Where", missing, np.array(np.nan), density), np.array([1]))
    return joint, density, posterior


def _names(labels: np.ndarray) -> np.ndarray:
    """Labels (J,) of a type that ONNX has."""
    kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
    if labels.dtype.kind in kinds:
        return labels.astype(kinds[labels.dtype.kind])
    if all(isinstance(label, str) for label in labels):
        return np.array([str(label) for label in labels], dtype=object)
    raise TypeError(f"ONNX has no type for labels like {labels[0]!r}; use strings or numbers.")
