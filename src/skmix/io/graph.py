"""Mixtures as ONNX graphs of standard operators, in double precision and in the log domain.

Inside the graph rows are the last axis, n. K is the number of kernels, J the number of outcomes: the
classes, or the kernels themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engine.compute import how_to_install
from .encoding import Kind

if TYPE_CHECKING:
    from onnx import ModelProto

# The first version in which all reductions take their axes as inputs, and its file version; onnxruntime has
# read both since 2023.
_OPERATORS, _FILE_VERSION = 18, 8
# The same of operators for categories.
_ENCODERS = 3
# Standardised values are clipped to this magnitude, as by `FeatureMap`.
_FARTHEST = 1e8

Features = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]
"""Shift, scale and powers (M,), curves (2, M, k), offset (M,) and matrix (M, q); see `FeatureMap`."""


@dataclass(frozen=True)
class Kernels:
    """Kernels of a feature set, in coordinates x' = x / scale − shift."""

    columns: list[int]  # m columns of X
    scale: np.ndarray  # (m,)
    shift: np.ndarray  # (m,)
    farthest: float  # coordinates are clipped to this magnitude, so that their squares stay finite
    means: np.ndarray  # (K, m)
    whitener: np.ndarray  # (K or 1, m, m): W with W P Wᵀ = I; (K or 1, m) where it is diagonal
    level: np.ndarray  # (K or 1,): log-density at the mean
    log_weights: np.ndarray | None  # (K, L): log Pr(kernel | class); None if kernels are the outcomes
    degrees: np.ndarray | None = None  # (K,): degrees of freedom; None for Gaussian kernels
    # Of a background: the box (2, m) on which it is uniform, in the units of X, and its log-probability in
    # each class (L,). If kernels are the outcomes, it is one more.
    box: np.ndarray | None = None
    log_background: np.ndarray | None = None


class _Graph:
    """Nodes and constants under construction."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(
        self, operator: str, *inputs: str | np.ndarray, output: str | None = None, **attributes: Any
    ) -> str:
        """Add a node and return the name of its output; inputs that are arrays become constants."""
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
        """Return values minus their maximum along axis 1, and the log-sum-exp of the values.

        With `relative` the maximum is subtracted from the latter as well: added to 1e16 it would be lost.
        """
        along = np.array([1])
        largest = self.add("ReduceMax", values, along, keepdims=1)
        less = self.add("Sub", values, largest)
        total = self.add("Log", self.add("ReduceSum", self.add("Exp", less), along, keepdims=1))
        return less, total if relative else self.add("Add", largest, total)

    def outcomes(self, rows: str, group: Kernels) -> str:
        """Return log p(x | class) (L, n) of one feature set, or the kernels' log-densities (K, n)."""
        own = self.add("Gather", rows, np.array(group.columns, dtype=np.int64), axis=1)
        x = self.add("Sub", self.add("Div", own, group.scale), group.shift)
        x = self.add("Clip", x, np.array(-group.farthest), np.array(group.farthest))
        difference = self.add("Sub", x, group.means[:, None, :])
        if group.whitener.ndim == 3:
            white = self.add("MatMul", difference, np.swapaxes(group.whitener, 1, 2))
        else:
            white = self.add("Mul", difference, group.whitener[:, None, :])
        squares = self.add("Mul", white, white)
        distance = self.add("ReduceSum", squares, np.array([2]), keepdims=0)
        if group.degrees is None:
            below = self.add("Mul", distance, np.array(0.5))
        else:
            ratio = self.add("Add", self.add("Div", distance, group.degrees[:, None]), np.array(1.0))
            powers = 0.5 * (group.degrees + len(group.columns))
            below = self.add("Mul", self.add("Log", ratio), powers[:, None])
        densities = self.add("Sub", group.level[:, None], below)
        uniform = None if group.box is None else self.uniform(own, group.box)
        if group.log_weights is None:
            return densities if uniform is None else self.add("Concat", densities, uniform, axis=0)
        weighted = self.add("Add", densities, group.log_weights.T[:, :, None])
        if uniform is not None and group.log_background is not None:
            noise = self.add("Add", uniform, group.log_background[:, None, None])
            weighted = self.add("Concat", weighted, noise, axis=1)
        return self.add("Squeeze", self.log_sum(weighted)[1], np.array([1]))

    def uniform(self, rows: str, box: np.ndarray) -> str:
        """Return the log-density (1, n) of a background that is uniform on a box (2, m), for rows (n, m)."""
        # Of as many columns as there are rows, which is known when the graph runs.
        zeros = self.add("ReduceSum", self.add("Mul", rows, np.array(0.0)), np.array([1]), keepdims=1)
        level = np.array(-np.log(box[1] - box[0]).sum())
        return self.add("Add", self.add("Transpose", zeros, perm=[1, 0]), level)

    def encoded(self, numbers: str, columns: Mapping[str, Kind]) -> str:
        """Return the features (n, M) of columns: numbers (n, P), and ``categories`` (n, Q) as zeros and ones.

        Categories that are not known are missing.
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
                keys_strings=kind,
                values_int64s=list(range(len(kind))),
                default_int64=-1,
            )
            own = self.add("Equal", code, np.arange(len(kind))[len(kind) == 2 :])
            known = self.add("GreaterOrEqual", code, np.array(0))
            parts.append(
                self.add("Where", known, self.add("Cast", own, to=TensorProto.DOUBLE), np.array(np.nan))
            )
        return self.add("Concat", *parts, axis=1)

    def mapped(self, rows: str, features: Features) -> str:
        """Return rows (n, M) standardised, by powers, and projected (n, q)."""
        shift, scale, powers, curves, offset, matrix = features
        z = self.add("Div", self.add("Sub", rows, shift), scale)
        z = self.add("Clip", z, np.array(-_FARTHEST), np.array(_FARTHEST))
        if np.any(powers != 1.0):
            logs = self.add("Log", self.add("Add", self.add("Abs", z), np.array(1.0)))
            sides = []
            for exponent in (powers, 2.0 - powers):
                # (e^{λ log(1 + |z|)} − 1) / λ, and log(1 + |z|) for λ = 0.
                zero = exponent == 0.0
                own = self.add("Exp", self.add("Mul", logs, exponent))
                own = self.add("Div", self.add("Sub", own, np.array(1.0)), np.where(zero, 1.0, exponent))
                sides.append(self.add("Where", zero, logs, own))
            positive = self.add("GreaterOrEqual", z, np.array(0.0))
            changed = self.add("Where", positive, sides[0], self.add("Neg", sides[1]))
            z = self.add("Where", powers == 1.0, z, changed)
        if curves is not None:
            z = self.along(curves, z)
        if offset is None or matrix is None:
            return z
        return self.add("MatMul", self.add("Sub", z, offset), matrix)

    def along(self, curves: np.ndarray, z: str) -> str:
        """Return values (n, M) along piecewise linear curves (2, M, k): the sum of what each piece rises."""
        places, values = curves
        widths, rises = np.diff(places), np.diff(values)
        passed = self.add("Sub", self.add("Unsqueeze", z, np.array([2])), places[:, :-1])
        shares = self.add("Div", passed, np.where(widths > 0.0, widths, 1.0))
        shares = self.add("Clip", shares, np.array(0.0), np.array(1.0))
        risen = self.add("Mul", shares, np.where(widths > 0.0, rises, 0.0))
        within = self.add("Add", self.add("ReduceSum", risen, np.array([2]), keepdims=0), values[:, 0])
        # Beyond the ends the slope is one.
        clipped = self.add("Min", self.add("Max", z, places[:, 0]), places[:, -1])
        return self.add("Add", within, self.add("Sub", z, clipped))

    def posterior(
        self,
        rows: str,
        groups: Sequence[Kernels],
        log_prior: np.ndarray,
        temperature: float | None,
        features: Features | None,
    ) -> tuple[str, str, str]:
        """Return log-joints (n, J), log-density (n,) and posterior (n, J) of one model of rows (n, M)."""
        from onnx import TensorProto

        found = rows if features is None else self.mapped(rows, features)
        outcomes = [self.outcomes(found, group) for group in groups]
        joint = reduce(lambda one, other: self.add("Add", one, other), outcomes)
        joint = self.add("Transpose", self.add("Add", joint, log_prior[:, None]), perm=[1, 0])
        gaps = self.add("IsNaN", rows)
        if features is None or features[-1] is None:
            used = np.array(sorted(c for group in groups for c in group.columns), dtype=np.int64)
            gaps = self.add("Gather", gaps, used, axis=1)
        gaps = self.add("ReduceMax", self.add("Cast", gaps, to=TensorProto.INT32), np.array([1]), keepdims=1)
        missing = self.add("Cast", gaps, to=TensorProto.BOOL)
        _, density = self.log_sum(joint)
        tempered = self.add("Div", joint, np.array(1.0 if temperature is None else temperature))
        posterior = self.add("Exp", self.add("Sub", *self.log_sum(tempered, relative=True)))
        # Explicit, because ONNX does not specify what Clip does with NaN.
        posterior = self.add("Where", missing, np.array(np.nan), posterior)
        density = self.add("Squeeze", self.add("Where", missing, np.array(np.nan), density), np.array([1]))
        return joint, density, posterior


def build_graph(
    groups: Sequence[Kernels],
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
    others: Sequence[dict[str, Any]] = (),
    log_shares: np.ndarray | None = None,
    n_hidden: int = 0,
) -> ModelProto:
    """Return a graph from X (n, M) to ``label`` (n,), probabilities (n, J) and ``log_density`` (n,).

    Log-densities are summed over feature sets; `log_prior` (J,) and `labels` (J,) are of the outcomes, and
    without labels there is no such output. X and the results are of type `dtype`, everything between is
    float64. Log-posteriors are divided by the temperature before they are normalised; `probabilities` is the
    name of that output. The groups' columns are those of `features` of X. With `others`, further models as
    arguments of this function, probabilities are averaged, and the density is the first one's; but with
    `log_shares`, of all models, densities are averaged with these shares, and probabilities are the first's.
    The last `n_hidden` outcomes of the first are left out of them. With `columns` of a table, X has those
    that are not categories, and ``categories`` (n, Q) the others.
    """
    try:
        from onnx import TensorProto, checker, helper
    except ImportError as error:
        raise ImportError(f"Export to ONNX needs onnx: {how_to_install('onnx')}") from error

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
    first = {"groups": groups, "log_prior": log_prior, "temperature": temperature, "features": features}
    parts = [graph.posterior(rows, **_arguments(each)) for each in (first, *others)]
    scores, density, posterior = parts[0]
    if log_shares is not None:
        along = np.array([1])
        own_densities = [graph.add("Unsqueeze", own, along) for _, own, _ in parts]
        _, density = graph.log_sum(graph.add("Add", graph.add("Concat", *own_densities, axis=1), log_shares))
        density = graph.add("Squeeze", density, along)
    elif others:
        total = reduce(lambda one, other: graph.add("Add", one, other), [own for *_, own in parts])
        scores = posterior = graph.add("Div", total, np.array(float(len(parts))))
    results = []
    if labels is not None:
        names = _names(labels)
        best = graph.add("ArgMax", scores, axis=1, keepdims=0)
        graph.add("Gather", names, best, axis=0, output="label")
        kind = helper.np_dtype_to_tensor_dtype(names.dtype)
        results.append(helper.make_tensor_value_info("label", kind, ["n"]))
    n_outcomes = len(log_prior) - n_hidden
    if n_hidden:
        ends = (np.array([end]) for end in (0, n_outcomes, 1))
        posterior = graph.add("Slice", posterior, *ends)
    graph.add("Cast", posterior, to=outside, output=probabilities)
    graph.add("Cast", density, to=outside, output="log_density")
    results.append(helper.make_tensor_value_info(probabilities, outside, ["n", n_outcomes]))
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


def _arguments(model: dict[str, Any]) -> dict[str, Any]:
    """Return what the graph of one model needs of it."""
    return {name: model.get(name) for name in ("groups", "log_prior", "temperature", "features")}


def _names(labels: np.ndarray) -> np.ndarray:
    """Return labels in one of ONNX's types."""
    kinds = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
    if labels.dtype.kind in kinds:
        return labels.astype(kinds[labels.dtype.kind])
    if all(isinstance(label, str) for label in labels):
        return np.array([str(label) for label in labels], dtype=object)
    raise TypeError(f"ONNX has no type for labels like {labels[0]!r}; use strings or numbers.")
