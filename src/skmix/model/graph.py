"""Mixtures as ONNX graphs of standard operators, in double precision and in the log domain.

Inside the graph, rows are the last axis, n. K is the number of kernels, and J the number of outcomes, which
are the classes or the kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from .._extras import need
from ..data.encoding import OTHER, Kind

if TYPE_CHECKING:
    from onnx import ModelProto

# The first version of the operators in which all reductions take axes as an input.
_OPERATORS = 18
# The file version that came with it; onnxruntime has read both since 2023.
_FILE_VERSION = 8
# Version of the operators of ai.onnx.ml, which encode categories.
_ENCODERS = 3
# Standardised values are clipped to this magnitude, as by `FeatureMap`.
_FARTHEST = 1e8

Features = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]
"""Shift, scale and powers (M,), curves (2, M, k), offset (M,) and matrix (M, q); see `FeatureMap`."""


@dataclass(frozen=True)
class WhitenedKernels:
    """Kernels of a feature set, in coordinates x' = x / scale − shift."""

    columns: list[int]  # m columns of X
    scale: np.ndarray  # (m,)
    shift: np.ndarray  # (m,)
    farthest: float  # coordinates are clipped to this magnitude, so that their squares stay finite
    means: np.ndarray  # (K, m)
    whitener: np.ndarray  # (K or 1, m, m): W with W P Wᵀ = I; (K or 1, m) if it is diagonal
    log_peaks: np.ndarray  # (K or 1,): log-density at the mean
    log_weights: np.ndarray | None  # (K, L): log Pr(kernel | class); None if kernels are the outcomes
    degrees: np.ndarray | None = None  # (K,): degrees of freedom; None for Gaussian kernels


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
        for given in inputs:
            name = given if isinstance(given, str) else f"constant_{len(self.constants)}"
            if not isinstance(given, str):
                contiguous = np.ascontiguousarray(given).reshape(given.shape)
                self.constants.append(numpy_helper.from_array(contiguous, name))
            names.append(name)
        result = output or f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, names, [result], name=result, **attributes))
        return result

    def log_sum(self, values: str, *, relative: bool = False) -> tuple[str, str]:
        """Return values minus their maximum along axis 1, and their log-sum-exp.

        With `relative`, the log-sum-exp is that of the differences: added to a maximum of 1e16 it would be
        lost.
        """
        axis = np.array([1])
        largest = self.add("ReduceMax", values, axis, keepdims=1)
        differences = self.add("Sub", values, largest)
        total = self.add("Log", self.add("ReduceSum", self.add("Exp", differences), axis, keepdims=1))
        return differences, total if relative else self.add("Add", largest, total)

    def outcomes(self, rows: str, kernels: WhitenedKernels) -> str:
        """Return log p(x | class) (L, n) of one feature set, or the kernels' log-densities (K, n)."""
        features = self.add("Gather", rows, np.array(kernels.columns, dtype=np.int64), axis=1)
        x = self.add("Sub", self.add("Div", features, kernels.scale), kernels.shift)
        x = self.add("Clip", x, np.array(-kernels.farthest), np.array(kernels.farthest))
        difference = self.add("Sub", x, kernels.means[:, None, :])
        if kernels.whitener.ndim == 3:
            white = self.add("MatMul", difference, np.swapaxes(kernels.whitener, 1, 2))
        else:
            white = self.add("Mul", difference, kernels.whitener[:, None, :])
        squares = self.add("Mul", white, white)
        distance = self.add("ReduceSum", squares, np.array([2]), keepdims=0)
        if kernels.degrees is None:
            drop = self.add("Mul", distance, np.array(0.5))
        else:
            ratio = self.add("Add", self.add("Div", distance, kernels.degrees[:, None]), np.array(1.0))
            powers = 0.5 * (kernels.degrees + len(kernels.columns))
            drop = self.add("Mul", self.add("Log", ratio), powers[:, None])
        densities = self.add("Sub", kernels.log_peaks[:, None], drop)
        if kernels.log_weights is None:
            return densities
        weighted = self.add("Add", densities, kernels.log_weights.T[:, :, None])
        return self.add("Squeeze", self.log_sum(weighted)[1], np.array([1]))

    def encoded(self, numbers: str, columns: Mapping[str, Kind]) -> str:
        """Return the features (n, M) of numbers (n, P) and of the input ``categories`` (n, Q).

        Unknown categories become NaN.
        """
        from onnx import TensorProto

        parts, n_numbers = [], 0
        for kind in columns.values():
            if not isinstance(kind, list):
                parts.append(self.add("Gather", numbers, np.array([n_numbers]), axis=1))
                n_numbers += 1
                continue
            text = self.add("Gather", "categories", np.array([len(parts) - n_numbers]), axis=1)
            code = self.add(
                "LabelEncoder",
                text,
                domain="ai.onnx.ml",
                # An empty text is missing.
                keys_strings=[*kind, ""],
                values_int64s=[*range(len(kind)), -1],
                default_int64=kind.index(OTHER) if OTHER in kind else -1,
            )
            is_category = self.add("Equal", code, np.arange(len(kind))[len(kind) == 2 :])
            known = self.add("GreaterOrEqual", code, np.array(0))
            one_hot = self.add("Cast", is_category, to=TensorProto.DOUBLE)
            parts.append(self.add("Where", known, one_hot, np.array(np.nan)))
        return self.add("Concat", *parts, axis=1)

    def mapped(self, rows: str, features: Features) -> str:
        """Standardise rows (n, M), transform them by powers and curves, and project them (n, q)."""
        shift, scale, powers, curves, offset, matrix = features
        z = self.add("Div", self.add("Sub", rows, shift), scale)
        z = self.add("Clip", z, np.array(-_FARTHEST), np.array(_FARTHEST))
        if np.any(powers != 1.0):
            logs = self.add("Log", self.add("Add", self.add("Abs", z), np.array(1.0)))
            sides = []
            for exponent in (powers, 2.0 - powers):
                # (e^{λ log(1 + |z|)} − 1) / λ, and log(1 + |z|) for λ = 0.
                zero = exponent == 0.0
                power = self.add("Exp", self.add("Mul", logs, exponent))
                side = self.add("Div", self.add("Sub", power, np.array(1.0)), np.where(zero, 1.0, exponent))
                sides.append(self.add("Where", zero, logs, side))
            positive = self.add("GreaterOrEqual", z, np.array(0.0))
            changed = self.add("Where", positive, sides[0], self.add("Neg", sides[1]))
            z = self.add("Where", powers == 1.0, z, changed)
        if curves is not None:
            z = self.along(curves, z)
        if offset is None or matrix is None:
            return z
        return self.add("MatMul", self.add("Sub", z, offset), matrix)

    def along(self, curves: np.ndarray, z: str) -> str:
        """Map values (n, M) by piecewise linear curves (2, M, k): sum the rises of all segments."""
        places, values = curves
        widths, rises = np.diff(places), np.diff(values)
        passed = self.add("Sub", self.add("Unsqueeze", z, np.array([2])), places[:, :-1])
        shares = self.add("Div", passed, np.where(widths > 0.0, widths, 1.0))
        shares = self.add("Clip", shares, np.array(0.0), np.array(1.0))
        risen = self.add("Mul", shares, np.where(widths > 0.0, rises, 0.0))
        within = self.add("Add", self.add("ReduceSum", risen, np.array([2]), keepdims=0), values[:, 0])
        # Beyond its ends, a curve has slope one.
        clipped = self.add("Min", self.add("Max", z, places[:, 0]), places[:, -1])
        return self.add("Add", within, self.add("Sub", z, clipped))

    def posterior(
        self,
        rows: str,
        feature_sets: Sequence[WhitenedKernels],
        log_prior: np.ndarray,
        temperature: float,
        features: Features | None,
    ) -> tuple[str, str, str]:
        """Return log-joints (n, J), log-density (n,) and posterior (n, J) of rows (n, M) under one model."""
        from onnx import TensorProto

        mapped = rows if features is None else self.mapped(rows, features)
        outcomes = [self.outcomes(mapped, kernels) for kernels in feature_sets]
        joint = reduce(lambda one, other: self.add("Add", one, other), outcomes)
        joint = self.add("Transpose", self.add("Add", joint, log_prior[:, None]), perm=[1, 0])
        gaps = self.add("IsNaN", rows)
        if features is None or features[-1] is None:
            used = np.array(sorted(c for kernels in feature_sets for c in kernels.columns), dtype=np.int64)
            gaps = self.add("Gather", gaps, used, axis=1)
        gaps = self.add("ReduceMax", self.add("Cast", gaps, to=TensorProto.INT32), np.array([1]), keepdims=1)
        missing = self.add("Cast", gaps, to=TensorProto.BOOL)
        _, density = self.log_sum(joint)
        tempered = self.add("Div", joint, np.array(temperature))
        posterior = self.add("Exp", self.add("Sub", *self.log_sum(tempered, relative=True)))
        # Set NaN explicitly: ONNX does not specify how Clip treats it.
        posterior = self.add("Where", missing, np.array(np.nan), posterior)
        density = self.add("Squeeze", self.add("Where", missing, np.array(np.nan), density), np.array([1]))
        return joint, density, posterior


def build_graph(
    feature_sets: Sequence[WhitenedKernels],
    log_prior: np.ndarray,
    labels: np.ndarray | None = None,
    *,
    n_features: int,
    dtype: np.dtype,
    columns: Mapping[str, Kind] | None = None,
    producer_version: str,
    temperature: float = 1.0,
    probabilities: str = "probabilities",
    features: Features | None = None,
) -> ModelProto:
    """Return a graph from X (n, M) to ``label`` (n,), probabilities (n, J) and ``log_density`` (n,).

    Log-densities are summed over feature sets, whose columns refer to X, or to the mapped `features` of X.
    The outcomes have log-priors `log_prior` (J,) and `labels` (J,); without labels, ``label`` is not an
    output. X and the results are of type `dtype`; the graph computes in float64. Log-joints are divided by
    the temperature before they are normalised; `probabilities` names the output of probabilities.

    With the `columns` of a table, X has the numeric columns, and the input ``categories`` (n, Q) the others.
    """
    need("onnx", "Export to ONNX needs")
    from onnx import TensorProto, checker, helper

    graph = _Graph()
    outside = helper.np_dtype_to_tensor_dtype(dtype)
    shapes = {"X": n_features}
    if columns is not None:
        n_coded = sum(isinstance(kind, list) for kind in columns.values())
        shapes = {"X": len(columns) - n_coded, "categories": n_coded}
    inputs = [
        helper.make_tensor_value_info(name, outside if name == "X" else TensorProto.STRING, ["n", width])
        for name, width in shapes.items()
        if width
    ]
    rows = graph.add("Cast", "X", to=TensorProto.DOUBLE) if shapes["X"] else ""
    rows = rows if columns is None else graph.encoded(rows, columns)
    joint, density, posterior = graph.posterior(rows, feature_sets, log_prior, temperature, features)
    results = []
    if labels is not None:
        names = _names(labels)
        best = graph.add("ArgMax", joint, axis=1, keepdims=0)
        graph.add("Gather", names, best, axis=0, output="label")
        kind = helper.np_dtype_to_tensor_dtype(names.dtype)
        results.append(helper.make_tensor_value_info("label", kind, ["n"]))
    graph.add("Cast", posterior, to=outside, output=probabilities)
    graph.add("Cast", density, to=outside, output="log_density")
    results.append(helper.make_tensor_value_info(probabilities, outside, ["n", len(log_prior)]))
    results.append(helper.make_tensor_value_info("log_density", outside, ["n"]))

    model = helper.make_model(
        helper.make_graph(graph.nodes, "mixture", inputs, results, graph.constants),
        producer_name="skmix",
        producer_version=producer_version,
        opset_imports=[helper.make_opsetid("", _OPERATORS)]
        + ([helper.make_opsetid("ai.onnx.ml", _ENCODERS)] if "categories" in shapes else []),
        ir_version=_FILE_VERSION,
    )
    checker.check_model(model, full_check=True)
    return model


def _names(labels: np.ndarray) -> np.ndarray:
    kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
    if labels.dtype.kind in kinds:
        return labels.astype(kinds[labels.dtype.kind])
    if all(isinstance(label, str) for label in labels):
        return np.array([str(label) for label in labels], dtype=object)
    raise TypeError(f"ONNX has no type for labels like {labels[0]!r}; use strings or numbers.")
