"""A fit without its parameters: rows, the frame of the passes over them, the update rule, and options.

Everything between `Problem.enter` and `Problem.leave` is in the coordinates of the frame: starts, samples of
the rows, priors, passes and their results.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .device.rows import DeviceRows
from .measured import Measured
from .numbers import is_numpy, pick, taken_in, to_numpy
from .records import FloatArray, Frame, IntArray, Options, Parameters, Regulariser, Result
from .rows.measured import MeasuredRows
from .rows.source import ArrayRows, GapRows, MemoryRows, RowSource
from .rows.summary import summarise
from .rules import UpdateRule
from .rules.likelihood import Likelihood, with_frozen
from .rules.variational import Variational, default_rows
from .structures import Structure, structure_of
from .structures.factors import rescaled


def open_source(X: Any, codes: IntArray | None = None, weights: FloatArray | None = None) -> RowSource:
    """Return the source for rows X with class codes (N,) and positive weights (N,).

    X is a NumPy array (N, M) of float64 or float32, NaN where a value is missing, or rows with errors, or a
    PyTorch tensor, on whose device passes run, or on the host if values are missing. Codes are 0 … L − 1, and
    −1 for rows without a label; None for one class.
    """
    X = X if is_numpy(X) else taken_in(X)
    summary = summarise(X, codes, weights)
    if isinstance(X, Measured):
        return MeasuredRows(X, codes, weights, summary)
    if summary.gaps:
        return GapRows(to_numpy(X), codes, weights, summary)
    kind: type[ArrayRows] = MemoryRows if is_numpy(X) else DeviceRows
    return kind(X, codes, weights, summary)


@dataclass(frozen=True)
class Problem:
    """Rows, the frame of their passes, the update rule and the options of a fit of K kernels."""

    source: RowSource
    frame: Frame
    rule: UpdateRule
    options: Options
    n_kernels: int

    @classmethod
    def of(cls, source: RowSource, options: Options, n_kernels: int, frame: Frame | None = None) -> Problem:
        """Return the problem of fitting K kernels by these options; by default in the frame of the rows."""
        structure = structure_of(options.covariance_type)
        frame = source.summary.frame(structure) if frame is None else frame
        return cls(source, frame, rule_of(options, frame, structure, n_kernels), options, n_kernels)

    @property
    def structure(self) -> Structure:
        """Structure of the covariances."""
        return self.rule.structure

    def with_options(self, **changes: Any) -> Problem:
        """Return the problem with another tolerance, stopping rule or number of passes."""
        return replace(self, options=replace(self.options, **changes))

    def with_regulariser(self, **changes: Any) -> Problem:
        """Return the problem of an EM fit with another floor or prior, in the frame."""
        assert isinstance(self.rule, Likelihood)
        regulariser = replace(self.rule.regulariser, **changes)
        return replace(self, rule=replace(self.rule, regulariser=regulariser))

    def sample(self, rows: tuple[Any, IntArray, FloatArray | None], index: IntArray) -> Problem:
        """Return the problem on some of the rows (X, codes, weights) in memory, without their weights."""
        X, codes, _ = rows
        return replace(self, source=open_source(pick(X, index), codes[index]))

    def enter(self, parameters: Parameters) -> Parameters:
        """Express parameters given in the data's coordinates in the frame."""
        return self.frame.enter(parameters, self.structure)

    def leave(self, parameters: Parameters, starts: Parameters | None = None) -> Parameters:
        """Express parameters given in the frame in the data's coordinates.

        Frozen parameters are those of `starts`, if these are given: the change of coordinates rounds.
        """
        outside = self.frame.leave(parameters.map(to_numpy), self.structure)
        return outside if starts is None else with_frozen(self.options.freeze, outside, starts)

    def volume(self, n_columns: int) -> FloatArray:
        """Log-likelihood (C,) of each class in the frame, less the one in the data's coordinates."""
        summary = self.source.summary
        return summary.by_class(summary.observed, n_columns) @ np.log(self.frame.scale)

    def leave_with(self, result: Result, starts: Parameters | None = None) -> Result:
        """Express the result of a fit from starts (in the data's coordinates) in the data's coordinates."""
        volume = self.volume(result.log_likelihood.shape[1])
        bounds = result.bounds
        return replace(
            result,
            parameters=self.leave(result.parameters, starts),
            log_likelihood=result.log_likelihood - volume,
            objective=result.objective - volume.sum(),
            path=[values - volume for values in result.path],
            fell=result.fell - volume.sum(),
            bounds=None if bounds is None else [values - volume.sum() for values in bounds],
        )


def rule_of(options: Options, frame: Frame, structure: Structure, n_kernels: int) -> UpdateRule:
    """Return the update rule for the options, in the frame."""
    regulariser = regulariser_of(options, frame, structure, n_kernels)
    if options.inference == "em":
        return Likelihood(
            structure, regulariser, options.freeze, options.learn_degrees, precision=options.precision
        )
    return Variational.of(options, regulariser, structure, n_kernels)


def regulariser_of(options: Options, frame: Frame, structure: Structure, n_kernels: int) -> Regulariser:
    """Express the options' floor, ridge and priors in the frame."""
    n_features, rows = len(frame.scale), options.covariance_prior
    if rows is None and options.inference == "variational":
        rows = default_rows(structure, n_features)
    prior = frame.variance / n_kernels ** (2.0 / n_features)
    if options.covariance_prior_scale is not None:
        prior = rescaled(options.covariance_prior_scale, 1.0 / frame.scale)
    floor = options.floor * frame.variance
    if options.resolution is not None:
        floor = np.maximum(floor, options.resolution / frame.scale**2)
    weight_prior = options.weight_prior
    return Regulariser(
        floor=floor,
        ridge=options.ridge / frame.scale**2 if options.ridge else None,
        prior_rows=rows or 0.0,
        prior_covariance=structure.common(prior),
        weight_prior=1.0 if isinstance(weight_prior, str) else weight_prior or 1.0,
        hierarchical=weight_prior if isinstance(weight_prior, str) else None,
        unit=options.unit,
    )
