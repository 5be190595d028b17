"""From too many kernels down to as many as pay for themselves (Figueiredo & Jain, 2002).

A round is an ordinary fit in which kernels that cannot pay are annihilated. When it is over, the lightest
kernel that is left goes too, and the next round begins there, down to one kernel for each class: fewer could
not tell the classes apart. The round with the shortest description of rows and parameters together is the
answer. All starts of a batch make their rounds together.

Rounds may be variational fits. The price of a kernel is then in their bound, and the round with the highest
one is the answer.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..covariances import Structure, structure_of
from ..em import Callback, fit
from ..model import BoolArray, FloatArray, IntArray, Options, Parameters, Result, Status
from ..rules.annihilation import description_length, price_of_kernel, take_kernels
from ..sources import RowSource
from ..sources.summary import Frame


def thin(
    source: RowSource,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    callback: Callback | None = None,
) -> Result:
    """Fit from R starts, with ever fewer kernels, and return the best round of each start.

    Kernels that are gone have a weight of zero in every class. The description's length is taken from the
    objective, and a start's passes are those of all rounds up to the one returned.

    Parameters
    ----------
    source, starts, options, frame, callback
        As for `fit`; `options.annihilate` is taken as set.
    """
    structure = structure_of(options.covariance_type).of(starts.covariances)
    n_starts, n_features = len(starts.means), starts.means.shape[-1]
    n_classes = starts.weights.shape[-1]
    frame = source.summary.frame(structure) if frame is None else frame
    n_rows, counted = source.summary.total, source.summary.class_sizes(n_classes)
    options = replace(options, annihilate=True)
    variational = options.inference == "variational"
    if variational:
        # Kernels that are gone stay in the prior, so that the bounds of all rounds are of one evidence.
        options = replace(options, prior_kernels=starts.means.shape[1])
    if options.covariance_prior_scale is None:
        # A prior that depends on the number of kernels would move the goal from round to round.
        spread = frame.variance * frame.scale**2 / starts.means.shape[1] ** (2.0 / n_features)
        options = replace(options, covariance_prior_scale=np.diag(spread))
    price = price_of_kernel(structure, n_features)
    best: Result | None = None
    active = np.arange(n_starts)
    passes: list[list[FloatArray]] = [[] for _ in range(n_starts)]
    bounds: list[list[FloatArray]] = [[] for _ in range(n_starts)]
    while len(active):
        result = fit(source, starts, options, frame=frame, callback=callback)
        for r, path in zip(active, result.path, strict=True):
            passes[r].append(path)
        for r, values in zip(active, result.bounds or [], strict=variational):
            bounds[r].append(values)
        prior = result.parameters.class_prior
        sizes = np.tile(counted, (len(active), 1)) if prior is None else n_rows * prior
        failed = result.status == Status.FAILED
        objective = result.objective
        if not variational:
            objective = objective - description_length(result.parameters.weights, price, n_rows)
        objective = np.where(failed, -np.inf, objective)
        if best is None:
            best = replace(result, objective=objective, path=list(result.path))
        else:
            better = objective > best.objective[active]
            _store(best, active[better], result, objective, np.flatnonzero(better), structure)
            for r in active[better]:
                best.path[r] = np.concatenate(passes[r])
                best.n_iter[r] = len(best.path[r])
                if best.bounds is not None:
                    best.bounds[r] = np.concatenate(bounds[r])
        starts, possible = without_lightest(result.parameters, sizes)
        going = possible & ~failed
        active = active[going]
        if len(active):
            starts = compact(starts.take(going), sizes[going], structure)
    assert best is not None
    return best


def _store(
    best: Result,
    starts: IntArray,
    result: Result,
    objective: FloatArray,
    rounds: IntArray,
    structure: Structure,
) -> None:
    """Let rounds of `result` take the places of the best so far of some starts."""
    n_kernels, n_left = best.parameters.means.shape[1], result.parameters.means.shape[1]
    better = result.parameters.take(rounds)
    # Kernels that were left out on the way come back as copies without weight, to fill the array.
    filled = np.where(np.arange(n_kernels) < n_left, np.arange(n_kernels), 0)
    better = take_kernels(better, np.tile(filled, (len(rounds), 1)), structure)
    better.weights[:, n_left:] = 0.0
    best.parameters.put(starts, better)
    best.status[starts] = result.status[rounds]
    best.log_likelihood[starts] = result.log_likelihood[rounds]
    best.objective[starts] = objective[rounds]
    if best.counts is not None and result.counts is not None:
        best.counts[starts] = 0.0
        best.counts[starts, :n_left] = result.counts[rounds]


def without_lightest(parameters: Parameters, class_sizes: FloatArray) -> tuple[Parameters, BoolArray]:
    """Take all weight from the lightest kernel that has any.

    Parameters
    ----------
    parameters : Parameters
        Of R starts.
    class_sizes : ndarray of shape (R, L)
        Rows of each class.

    Returns
    -------
    parameters : Parameters
        With one kernel less in each start, its weight spread over the others in proportion.
    possible : ndarray of shape (R,)
        False where a class would be left with nothing, or fewer kernels than classes: there nothing has
        changed.
    """
    rows = np.einsum("rkc,rc->rk", parameters.weights, class_sizes)
    lightest = np.argmin(np.where(rows > 0, rows, np.inf), axis=1)
    weights = parameters.weights.copy()
    weights[np.arange(len(weights)), lightest] = 0.0
    sums = weights.sum(axis=1, keepdims=True)
    possible: BoolArray = np.all(sums > 0, axis=(1, 2))
    possible &= np.count_nonzero(rows, axis=1) > weights.shape[-1]
    weights = np.where(possible[:, None, None], weights / np.where(sums > 0, sums, 1.0), parameters.weights)
    return replace(parameters, weights=weights), possible


def compact(parameters: Parameters, class_sizes: FloatArray, structure: Structure) -> Parameters:
    """Return starts with heavy kernels first, and no more places than one of them needs."""
    rows = np.einsum("rkc,rc->rk", parameters.weights, class_sizes)
    n_left = int((rows > 0).sum(axis=1).max())
    order = np.argsort(-rows, axis=1, kind="stable")[:, :n_left]
    return take_kernels(parameters, order, structure)
