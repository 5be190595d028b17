"""Online EM on a stream (Cappé and Moulines, 2009).

The average statistics s of a row move towards those of the newest batch, s ← (1 − η) s + η s_batch, and the
M-step is that of batch EM. If the newest batch has one t-th of all rows so far, as the t-th of equal batches
has, η = t^−decay. Rows count by their weights, whether they have a label or not, so that η does not depend on
the scale of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..estep.terms import moved
from ..loop import Passes
from ..numbers import like, to_numpy
from ..problem import Problem
from ..records import FloatArray, Frame, Parameters, Statistics
from ..structures import structure_of


@dataclass(frozen=True)
class Running:
    """The state of a stream."""

    frame: Frame  # coordinates of the statistics, from the first batch
    statistics: Statistics  # average statistics of a row, with a leading axis of one start
    origins: FloatArray  # (1, K, M): origins of their moments
    n_rows: float  # rows seen, with and without a label, or the sum of their weights

    def to_dict(self) -> dict[str, Any]:
        """Return the record as arrays and numbers by name."""
        rest = {"origins": self.origins, "n_rows": self.n_rows}
        return {**vars(self.frame), **vars(self.statistics), **rest}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Running:
        """Return the record from the output of `to_dict`."""
        frame = Frame(**{field.name: values[field.name] for field in fields(Frame)})
        sums = {field.name: values[field.name] for field in fields(Statistics) if field.name in values}
        return cls(frame, Statistics(**sums), values["origins"], values["n_rows"])


def resume(parameters: Parameters, frame: Frame, covariance_type: str, n_rows: float) -> Running:
    """Return a stream's state for a fitted model: the statistics whose M-step gives that model.

    The model, in the data's coordinates and with its `class_prior`, counts as that many rows. The variances
    of the frame are replaced by those of the model's density.
    """
    structure = structure_of(covariance_type)
    inside = frame.enter(parameters.batch(), structure)
    assert inside.class_prior is not None
    # Mass (1, K, L + 1) of an average row; the last column is for rows without a label.
    mass = np.pad(inside.weights * inside.class_prior[:, None], [(0, 0), (0, 0), (0, 1)])
    share = mass.sum(axis=-1)
    second = share[..., None] * structure.terms_of(inside.covariances, *inside.means.shape[1:])
    statistics = Statistics(np.zeros((1, mass.shape[-1])), mass, np.zeros_like(inside.means), second)
    # The variances of a mixture: those within kernels and between their means.
    within = np.broadcast_to(structure.variances(inside.covariances), inside.means.shape)[0]
    means, share = inside.means[0], share[0]
    variance = share @ within + share @ (means - share @ means) ** 2
    return Running(replace(frame, variance=variance), statistics, inside.means, n_rows)


def update_from_batch(
    problem: Problem, parameters: Parameters, running: Running | None, *, decay: float
) -> tuple[Parameters, Running, float]:
    """Update one model with a batch: return the new one, the state, and the batch's log-likelihood before.

    The rows of the problem are the batch. The model has its `class_prior` and is in the data's coordinates.
    `running` is None for the first batch; later ones have its frame. The lower `decay` is, above 0.5 and at
    most 1, the faster the past fades.
    """
    source, structure, start = problem.source, problem.structure, parameters.batch()
    # The M-step is small, and the running statistics are on the host.
    with Passes.over(problem, on_host=True) as passes:
        rule = passes.rule
        inside, factor = rule.enter(problem.enter(start))
        placed, placed_factor = inside.map(source.to_device), factor.map(source.to_device)
        statistics, origins = passes.expect(placed, placed_factor)
        lost = rule.improve(statistics.map(to_numpy), to_numpy(origins), inside, factor)[2]
        if lost.any():
            # Narrow kernels need moments about their means, as in `Passes.step`.
            centres = like(lost, placed.means), placed.means
            statistics, origins = passes.expect(placed, placed_factor, centres=centres)
    volume = problem.volume(statistics.log_likelihood.shape[-1]).sum()
    log_likelihood = float(to_numpy(statistics.log_likelihood).sum() - volume)
    n_rows = n_new = source.summary.total
    batch = moved(statistics.map(to_numpy), to_numpy(origins), inside.means, structure)
    average = batch.map(lambda sums: sums / n_new)
    if running is not None:
        n_rows = running.n_rows + n_new
        step = (n_new / n_rows) ** decay
        past = moved(running.statistics, running.origins, inside.means, structure)
        past = past.map(lambda sums: (1.0 - step) * sums)
        average = average.map(lambda sums: step * sums).plus(past)
    # Priors count rows, so the M-step is given statistics of all rows seen.
    every_row = average.map(lambda sums: n_rows * sums)
    following, next_factor, _ = rule.improve(every_row, inside.means, inside, factor)
    if not next_factor.usable[0]:
        following = replace(following, means=inside.means, covariances=inside.covariances)
    model = problem.leave(rule.finish(following), start).take(0)
    return model, Running(problem.frame, average, inside.means, n_rows), log_likelihood
