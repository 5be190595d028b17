"""Calls of the loop by rows, codes and weights, until the estimators open their rows once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..engine import em
from ..engine.covariances import structure_of
from ..engine.model import FloatArray, IntArray, Options, Parameters, Result
from ..engine.sources import open_source
from ..engine.sources.summary import Frame

Progress = Callable[[int, IntArray, FloatArray], None]


def fit(
    X: Any,
    classes: IntArray | None,
    starts: Parameters,
    options: Options,
    *,
    frame: Frame | None = None,
    row_weights: FloatArray | None = None,
    previous: FloatArray | None = None,
    progress: Progress | None = None,
    keep: Callable[[Callable[[], em.RunState]], None] | None = None,
    resume: em.RunState | None = None,
) -> Result:
    """Run EM; see `skmix.engine.em.fit`."""

    def callback(run: em.Run) -> None:
        if progress is not None:
            progress(run.n_passes, run.active, run.log_likelihood.sum(axis=1))
        if keep is not None:
            keep(run.state)

    quiet = progress is None and keep is None
    source = open_source(X, classes, row_weights)
    if previous is not None:
        # Log-likelihoods (R, L) before the first pass, for a fit that goes on from another.
        structure = structure_of(options.covariance_type).of(starts.covariances)
        frame = source.summary.frame(structure) if frame is None else frame
        n_columns = previous.shape[1]
        volume = source.summary.by_class(source.summary.observed, n_columns) @ np.log(frame.scale)
        begin = em.RunState.begin(frame.enter(starts, structure), n_columns, n_columns)
        resume = replace(begin, previous=previous + volume)
    return em.fit(
        source,
        starts,
        options,
        frame=frame,
        callback=None if quiet else callback,
        resume=resume,
    )
