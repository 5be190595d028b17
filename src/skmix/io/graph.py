"""Mixtures as ONNX graphs of standard operators, in double precision and in the log domain.

Inside the graph rows are the last axis, n. K is the number of kernels, J the number of outcomes: the
classes, or the kernels themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto

# The first version in which all reductions take their axes as inputs, and its file version; onnxruntime has
# read both since 2023.
_OPERATORS = 18
_FILE_VERSION = 8


@dataclass(frozen=True)
class Kernels:
    """Kernels of a feature group, in coordinates x' = x / scale − shift.

    Attributes
    ----------
    columns : list of m ints
        Columns of X.
    scale, shift : ndarray of shape (m,)
        The change of coordinates.
    farthest : float
        Coordinates are clipped to this magnitude, so that their squares stay finite.
    means : ndarray of shape (K, m)
        Kernel means.
    whitener : ndarray of shape (K or 1, m, m) or (K or 1, m)
        Whitening factor W with W P Wᵀ = I; only the diagonal if it is diagonal.
    level : ndarray of shape (K or 1,)
        Log-density at the mean.
    log_weights : ndarray of shape (K, L) or None
        log Pr(kernel | class); None if the kernels themselves are the outcomes.
    """

    columns: list[int]
    scale: np.ndarray
    shift: np.ndarray
    farthest: float
    means: np.ndarray
    whitener: np.ndarray
    level: np.ndarray
    log_weights: np.ndarray | None


def build_graph(
    groups: Sequence[Kernels],
    log_prior: np.ndarray,
    labels: np.ndarray | None,
    *,
    n_features: int,
    dtype: np.dtype,
    temperature: float,
    probabilities: str,
    producer_version: str,
    projection: tuple[np.ndarray, np.ndarray] | None = None,
) -> ModelProto:
    """Return a graph that computes probabilities of the outcomes of rows X (n, M).

    Parameters
    ----------
    groups : sequence of Kernels
        Kernels of each feature group; log-densities are summed over groups.
    log_prior : ndarray of shape (J,)
        Logarithms of the prior probabilities of the outcomes.
    labels : ndarray of shape (J,) or None
        Labels of the outcomes: strings, integers, floats or booleans. None leaves out the output ``label``.
    n_features : int
        M.
    dtype : dtype
        float64 or float32, of X and of the results; everything between is float64.
    temperature : float
        Log-posteriors are divided by it before they are normalised.
    probabilities : str
        Name of the output (n, J) of probabilities.
    producer_version : str
        Version of the library.
    projection : tuple of ndarrays of shape (M,) and (M, q), optional
        Offset b and matrix A: the features that the groups' columns refer to are then (x − b) A.

    Returns
    -------
    ModelProto
        With outputs ``label`` (n,), probabilities (n, J) and ``log_density`` (n,).
    """
    try:
        from onnx import checker, helper
    except ImportError as error:
        raise ImportError("Export to ONNX needs onnx: pip install skmix[onnx]") from error

    graph = _Graph()
    outside = helper.np_dtype_to_tensor_dtype(dtype)
    rows = graph.add("Cast", "X", to=helper.np_dtype_to_tensor_dtype(np.dtype(np.float64)))
    if projection is not None:
        centred = graph.add("Sub", rows, graph.constant(projection[0]))
        rows = graph.add("MatMul", centred, graph.constant(projection[1]))
    parts = [_outcomes(graph, rows, group) for group in groups]
    joint = parts[0]
    for part in parts[1:]:
        joint = graph.add("Add", joint, part)
    joint = graph.add("Transpose", graph.add("Add", joint, graph.constant(log_prior[:, None])), perm=[1, 0])

    used = graph.constant(np.array(sorted(c for group in groups for c in group.columns), dtype=np.int64))
    missing = _missing(graph, graph.add("Gather", rows, used, axis=1))
    results = []
    if labels is not None:
        names = _names(labels)
        best = graph.add("ArgMax", joint, axis=1, keepdims=0)
        kind = helper.np_dtype_to_tensor_dtype(names.dtype)
        graph.add("Gather", graph.constant(names), best, axis=0, output="label")
        results.append(helper.make_tensor_value_info("label", kind, ["n"]))
    _, density = _log_sum(graph, joint, axis=1)
    tempered = graph.add("Div", joint, graph.constant(np.array(temperature)))
    relative, total = _log_sum(graph, tempered, axis=1, relative=True)
    posterior = graph.add("Exp", graph.add("Sub", relative, total))
    # Explicit, because ONNX does not specify what Clip does with NaN.
    nan = graph.constant(np.array(np.nan))
    posterior = graph.add("Where", missing, nan, posterior)
    density = graph.add("Squeeze", graph.add("Where", missing, nan, density), graph.constant(np.array([1])))
    graph.add("Cast", posterior, to=outside, output=probabilities)
    graph.add("Cast", density, to=outside, output="log_density")
    results.append(helper.make_tensor_value_info(probabilities, outside, ["n", len(log_prior)]))
    results.append(helper.make_tensor_value_info("log_density", outside, ["n"]))

    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "mixture",
            [helper.make_tensor_value_info("X", outside, ["n", n_features])],
            results,
            graph.constants,
        ),
        producer_name="skmix",
        producer_version=producer_version,
        opset_imports=[helper.make_opsetid("", _OPERATORS)],
        ir_version=_FILE_VERSION,
    )
    checker.check_model(model, full_check=True)
    return model


class _Graph:
    """Nodes and constants under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: np.ndarray) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        name = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name


def _outcomes(graph: _Graph, rows: str, group: Kernels) -> str:
    """Return log p(x | class) (L, n) of one feature group, or the kernels' log-densities (K, n)."""
    columns = graph.constant(np.array(group.columns, dtype=np.int64))
    x = graph.add("Gather", rows, columns, axis=1)
    x = graph.add("Sub", graph.add("Div", x, graph.constant(group.scale)), graph.constant(group.shift))
    limits = [graph.constant(np.array(limit)) for limit in (-group.farthest, group.farthest)]
    x = graph.add("Clip", x, *limits)
    difference = graph.add("Sub", x, graph.constant(group.means[:, None, :]))
    if group.whitener.ndim == 3:
        white = graph.add("MatMul", difference, graph.constant(np.swapaxes(group.whitener, 1, 2)))
    else:
        white = graph.add("Mul", difference, graph.constant(group.whitener[:, None, :]))
    squares = graph.add("Mul", white, white)
    distance = graph.add("ReduceSum", squares, graph.constant(np.array([2])), keepdims=0)
    half = graph.add("Mul", distance, graph.constant(np.array(0.5)))
    densities = graph.add("Sub", graph.constant(group.level[:, None]), half)
    if group.log_weights is None:
        return densities
    weighted = graph.add("Add", densities, graph.constant(group.log_weights.T[:, :, None]))
    _, likelihood = _log_sum(graph, weighted, axis=1)
    return graph.add("Squeeze", likelihood, graph.constant(np.array([1])))


def _log_sum(graph: _Graph, values: str, axis: int, *, relative: bool = False) -> tuple[str, str]:
    """Return values minus their maximum along an axis, and the log-sum-exp of the values.

    With `relative` the maximum is subtracted from the latter as well: added to 1e16 it would be lost.
    """
    along = graph.constant(np.array([axis]))
    largest = graph.add("ReduceMax", values, along, keepdims=1)
    less = graph.add("Sub", values, largest)
    total = graph.add("Log", graph.add("ReduceSum", graph.add("Exp", less), along, keepdims=1))
    return less, total if relative else graph.add("Add", largest, total)


def _missing(graph: _Graph, rows: str) -> str:
    """Return whether rows (n, m) have a NaN, shape (n, 1)."""
    from onnx import TensorProto

    counted = graph.add("Cast", graph.add("IsNaN", rows), to=TensorProto.INT32)
    some = graph.add("ReduceMax", counted, graph.constant(np.array([1])), keepdims=1)
    return graph.add("Cast", some, to=TensorProto.BOOL)


def _names(labels: np.ndarray) -> np.ndarray:
    """Return labels in one of ONNX's types."""
    kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
    if labels.dtype.kind in kinds:
        return labels.astype(kinds[labels.dtype.kind])
    if all(isinstance(label, str) for label in labels):
        return np.array([str(label) for label in labels], dtype=object)
    raise TypeError(f"ONNX has no type for labels like {labels[0]!r}; use strings or numbers.")
