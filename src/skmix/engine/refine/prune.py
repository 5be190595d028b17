"""Pruning by description length, starting from too many kernels (Figueiredo & Jain, 2002).

A round is a fit that removes kernels with too few rows for their parameters; see `annihilate`. After it the
lightest remaining kernel is removed, and the next round continues from there, as long as every class has a
kernel. The result is the round with the shortest description of rows and parameters. All starts of a batch
are pruned together.

Rounds may be variational fits: their bound already includes the cost of a kernel, and the result is the round
with the highest bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..em import Run, fit
from ..model import BoolArray, FloatArray, Frame, IntArray, Options, Parameters, Result, Status
from ..rules.likelihood import annihilate, price_of_kernel
from ..sources import RowSource
from ..structures import Structure, structure_of


def prune_kernels(
    source: RowSource,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    callback: Callable[[Run], None] | None = None,
) -> Result:
    """Fit from R starts, with fewer kernels in each round, and return the best round of each start.

    Parameters are as for `fit`. Removed kernels have weight zero in every class. The objective is less the
    description length of the parameters. Path and passes cover all rounds up to the returned one.
    """
    structure = structure_of(options.covariance_type).of(starts.covariances)
    n_starts, n_kernels, n_features = starts.means.shape
    frame = source.summary.frame(structure) if frame is None else frame
    n_rows, counted = source.summary.total, source.summary.class_sizes(starts.weights.shape[-1])
    # Removed kernels stay in the prior, so that all rounds bound the same evidence.
    options = replace(options, annihilate=True, prior_kernels=n_kernels)
    if options.covariance_prior_scale is None:
        # The default depends on the number of kernels, which would give each round another objective.
        spread = frame.variance * frame.scale**2 / n_kernels ** (2.0 / n_features)
        options = replace(options, covariance_prior_scale=structure.common(spread))
    price, active = price_of_kernel(structure, n_features), np.arange(n_starts)
    best: Result | None = None
    paths: list[list[FloatArray]] = [[] for _ in active]
    bounds: list[list[FloatArray]] = [[] for _ in active]
    while len(active):
        result = fit(source, starts, options, frame=frame, callback=callback)
        objective, failed = result.objective, result.status == Status.FAILED
        if options.inference == "em":
            objective = objective - description_length(result.parameters.weights, price, n_rows)
        objective = np.where(failed, -np.inf, objective)
        if best is None:
            best = replace(result, objective=np.full(n_starts, -np.inf), path=list(result.path))
        for i, r in enumerate(active):
            paths[r].append(result.path[i])
            bounds[r] += [] if result.bounds is None else [result.bounds[i]]
        rounds = np.flatnonzero(objective > best.objective[active])
        _store(best, active[rounds], replace(result, objective=objective), rounds, structure)
        for r in active[rounds]:
            best.path[r] = np.concatenate(paths[r])
            best.n_iter[r] = len(best.path[r])
            if best.bounds is not None:
                best.bounds[r] = np.concatenate(bounds[r])
        prior = result.parameters.class_prior
        sizes = np.tile(counted, (len(active), 1)) if prior is None else n_rows * prior
        starts, possible = without_lightest(result.parameters, sizes)
        going = possible & ~failed
        active = active[going]
        if len(active):
            starts = compact(starts.take(going), sizes[going], structure)
    assert best is not None
    return best


def _store(best: Result, starts: IntArray, result: Result, rounds: IntArray, structure: Structure) -> None:
    """Replace the best results of `starts` by those of `rounds` in `result`."""
    n_kernels, n_left = best.parameters.means.shape[1], result.parameters.means.shape[1]
    # Removed kernels become copies of the first kernel without weight.
    filled = np.where(np.arange(n_kernels) < n_left, np.arange(n_kernels), 0)
    better = take_kernels(result.parameters.take(rounds), np.tile(filled, (len(rounds), 1)), structure)
    better.weights[:, n_left:] = 0.0
    best.parameters.put(starts, better)
    for old, new in (
        (best.status, result.status),
        (best.log_likelihood, result.log_likelihood),
        (best.objective, result.objective),
    ):
        old[starts] = new[rounds]
    if best.counts is not None and result.counts is not None:
        best.counts[starts, :n_left] = result.counts[rounds]
        best.counts[starts, n_left:] = 0.0


def description_length(weights: FloatArray, price: float, n_rows: float) -> FloatArray:
    """Return the description length (R,) of kernels: ½ log N for each parameter.

    The `price` is half the parameters of a kernel; kernels without `weights` (R, K, L) do not count. Less the
    log-likelihood it is half the BIC, up to a constant. The reference's message length charges almost nothing
    for kernels of a few rows, which favours collapsed kernels.
    """
    alive = np.count_nonzero(weights.any(axis=-1), axis=1)
    length: FloatArray = alive * (price + 0.5 * weights.shape[-1]) * math.log(n_rows)
    return length


def without_lightest(parameters: Parameters, class_sizes: FloatArray) -> tuple[Parameters, BoolArray]:
    """Remove the lightest kernel of each start, given class sizes (R, L); also return where possible (R,).

    A start is left unchanged if a class would have no kernels.
    """
    mass = parameters.weights * class_sizes[:, None]
    left = annihilate(mass, np.inf)
    possible: BoolArray = np.any(left != mass, axis=(1, 2))
    weights = np.where(possible[:, None, None], left / left.sum(axis=1, keepdims=True), parameters.weights)
    return replace(parameters, weights=weights), possible


def compact(parameters: Parameters, class_sizes: FloatArray, structure: Structure) -> Parameters:
    """Return starts with heavy kernels first, and only as many kernels as the largest start has."""
    rows = np.einsum("rkc,rc->rk", parameters.weights, class_sizes)
    n_left = int((rows > 0).sum(axis=1).max())
    order = np.argsort(-rows, axis=1, kind="stable")[:, :n_left]
    return take_kernels(parameters, order, structure)


def living_kernels(parameters: Parameters, structure: Structure) -> Parameters:
    """Return one model without the kernels that have no weight in any class."""
    alive = np.flatnonzero(parameters.weights.any(axis=1))
    if len(alive) == len(parameters.weights):
        return parameters
    return take_kernels(parameters.batch(), alive[None], structure).take(0)


def take_kernels(parameters: Parameters, kernels: IntArray, structure: Structure) -> Parameters:
    """Return R starts with the chosen kernels (R, k) of each."""
    own = parameters.concentration
    return replace(
        parameters,
        concentration=None if own is None else np.take_along_axis(own, kernels, axis=1),
        tail=parameters.tail.take_kernels(kernels),
        weights=np.take_along_axis(parameters.weights, kernels[..., None], axis=1),
        means=np.take_along_axis(parameters.means, kernels[..., None], axis=1),
        covariances=structure.take_kernels(parameters.covariances, kernels),
    )
