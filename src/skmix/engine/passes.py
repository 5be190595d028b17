"""One pass of EM, wherever the rows are: in memory, with gaps, on a device, in blocks."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from .compute.arrays import namespace, occurs, pick, to_numpy
from .compute.threads import Workers
from .covariances import Structure
from .model import BoolArray, Factor, FloatArray, Parameters, Prior, Regulariser, Statistics
from .rules.likelihood import Prepared, maximise, prepare, with_unlabelled
from .rules.variational import learn
from .sources.device import DeviceRows
from .sources.expanded import collect
from .sources.gaps import Pattern, Patterns, complete, marginal
from .sources.memory import Rows
from .sources.scattered import Scattered

_TINY = float(np.finfo(np.float64).tiny)

# Rows wherever they are.
Source = Rows | Patterns | DeviceRows | Scattered


def one_pass(
    rows: Source,
    parameters: Parameters,
    factor: Factor,
    structure: Structure,
    regulariser: Regulariser | Prior,
    pool: Workers,
    freeze: str | None = None,
) -> tuple[Parameters, Factor, FloatArray]:
    """Return the next parameters, their factor, and the log-likelihood (R, L) of those that entered.

    With a `Prior` in the place of the regulariser, parameters are posteriors.
    """
    if isinstance(regulariser, Prior):
        improve = partial(learn, structure=structure, prior=regulariser)
    else:
        improve = partial(maximise, structure=structure, regulariser=regulariser)
    statistics, origins = expect(rows, parameters, factor, structure, pool)
    following, next_factor, inaccurate = improve(statistics, origins, parameters)
    if freeze == "kernels":
        kept = replace(following, means=parameters.means, covariances=parameters.covariances)
        return kept, factor, statistics.log_likelihood
    if freeze == "weights":
        following = replace(following, weights=parameters.weights)
    if occurs(inaccurate):
        again = np.flatnonzero(to_numpy(inaccurate).any(axis=1))
        # The new means are right; the covariances want moments about them.
        centres = pick(inaccurate, again), pick(following.means, again)
        entered = parameters.take(again)
        closer, origins = expect(rows, entered, factor.take(again), structure, pool, centres=centres)
        better, better_factor, _ = improve(closer, origins, entered)
        better = replace(better, weights=pick(following.weights, again))
        following = following.put(again, better)
        next_factor = next_factor.put(again, better_factor)
    return following, next_factor, statistics.log_likelihood


def expect(
    rows: Source,
    parameters: Parameters,
    factor: Factor,
    structure: Structure,
    pool: Workers,
    *,
    centres: tuple[BoolArray, FloatArray] | None = None,
    moments: bool = True,
) -> tuple[Statistics, FloatArray]:
    """Do the E-step: return the statistics of all rows, and the origins (R, K, M) of their moments.

    Parameters
    ----------
    rows : Rows, Patterns, DeviceRows or Scattered
        The data.
    parameters : Parameters
        In the coordinates of the frame.
    factor : Factor
        Of the covariances.
    structure : Structure
        Covariance structure.
    pool : Workers
        Threads.
    centres : tuple of ndarrays of shape (R, K) and (R, K, M), optional
        Kernels whose moments to take about the given points.
    moments : bool
        False when only the log-likelihood is wanted.
    """
    mixed = with_unlabelled(parameters)
    if isinstance(rows, Scattered):
        statistics, origins = rows.expect(mixed, factor, pool, centres, moments)
    else:
        statistics, origins = expect_rows(rows, mixed, factor, structure, pool, centres, moments)
    if parameters.class_prior is not None:
        # Of row and label together, so that the sum over all rows is the likelihood that EM climbs.
        prior, xp = parameters.class_prior, namespace(parameters.class_prior)
        log_prior = xp.log(xp.where(prior > _TINY, prior, _TINY))
        log_prior = xp.concat([log_prior, xp.zeros_like(log_prior[:, :1])], axis=1)
        sizes = rows.sizes if isinstance(rows, DeviceRows) else rows.class_sizes
        joint = statistics.log_likelihood + sizes * log_prior
        statistics = replace(statistics, log_likelihood=joint)
    return statistics, origins


def expect_rows(
    rows: Rows | Patterns | DeviceRows,
    parameters: Parameters,
    factor: Factor,
    structure: Structure,
    pool: Workers,
    centres: tuple[BoolArray, FloatArray] | None,
    moments: bool,
) -> tuple[Statistics, FloatArray]:
    """Do the E-step of rows that are in memory; rows without a label have their own column of weights."""
    if not isinstance(rows, Patterns):
        bound = rows.frame.bound if isinstance(rows, Rows) else rows.bound
        prepared = prepare(parameters, structure, bound, factor)
        if centres is not None:
            prepared = prepared.recentre(*centres)
        return gather(rows, prepared, pool, moments=moments), prepared.origins
    origins = parameters.means
    if centres is not None:
        origins = np.where(centres[0][..., None], centres[1], origins)
    parts = [
        _expect_pattern(pattern, parameters, structure, pool, centres, origins, moments)
        for pattern in rows.patterns
    ]
    statistics = parts[0]
    for part in parts[1:]:
        statistics.add(part)
    return statistics, origins


def _expect_pattern(
    pattern: Pattern,
    parameters: Parameters,
    structure: Structure,
    pool: Workers,
    centres: tuple[BoolArray, FloatArray] | None,
    origins: FloatArray,
    moments: bool,
) -> Statistics:
    """Return the statistics of the rows of one pattern, completed and about `origins`."""
    columns, rows = pattern.columns, pattern.rows
    prepared = prepare(marginal(parameters, columns, structure), structure, rows.frame.bound)
    if centres is not None:
        prepared = prepared.recentre(centres[0], centres[1][..., columns])
    statistics = gather(rows, prepared, pool, moments=moments)
    return complete(statistics, columns, prepared.origins, origins, parameters, structure)


def gather(rows: Rows | DeviceRows, prepared: Prepared, pool: Workers, *, moments: bool = True) -> Statistics:
    """Return the statistics of all rows: blocks of rows × groups of starts, summed in a fixed order."""
    if isinstance(rows, DeviceRows):
        return rows.gather(prepared, moments=moments)
    n_starts, n_kernels, _ = prepared.coefficients.shape
    cut = rows.plan(n_starts, n_kernels)
    slices = [slice(a, min(a + cut.group, n_starts)) for a in range(0, n_starts, cut.group)]
    groups = [prepared.take(s) for s in slices] if len(slices) > 1 else [prepared]

    def work(task: tuple[int, tuple[int, int]]) -> Statistics:
        group, (start, stop) = task
        return collect(rows, start, stop, groups[group], pool.workspace, cut=cut, moments=moments)

    tasks = [(group, rows_of_task) for group in range(len(groups)) for rows_of_task in rows.cuts(cut.block)]
    totals: list[Statistics] = []
    for (group, _), statistics in zip(tasks, pool.map(work, tasks), strict=True):
        if group == len(totals):
            totals.append(statistics)
        else:
            totals[group].add(statistics)
    if len(totals) == 1:
        return totals[0]
    return Statistics(
        np.concatenate([t.log_likelihood for t in totals]),
        np.concatenate([t.mass for t in totals]),
        np.concatenate([t.first for t in totals]),
        np.concatenate([t.second for t in totals]),
    )
